"""Estimate a program from its declared shapes: memory, frequencies of ops, parameters and FLOPs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from ...strategies.errors import InvalidValue, require_type
from ...strategies.types import VarType, to_numpy
from ..program.block import Block
from ..program.operator import Operator
from ..program.program import Program
from ..program.role import EMPTY_VAR
from ..program.variable import Parameter, Variable

_SPARE = (1.05, 1.1)  # Paddle's factors on the sum
_ELEMENTWISE = ("relu", "relu6", "sigmoid", "tanh", "leaky_relu", "elu", "swish", "hard_swish")


def memory_usage(program: Program, batch_size: int) -> tuple[float, float, str]:
    """Return the least and the most memory that a program's results take at a batch size, and the unit.

    All results are counted as if none shared memory; ``CompiledProgram.explain()`` has the planned bytes.

    Raises:
        InvalidType: ``program`` is no Program.
        InvalidValue: ``batch_size`` is not positive, or a variable has two unknown sizes.
    """
    _check(program, "memory_usage")
    if batch_size <= 0:
        raise InvalidValue(f"memory_usage: batch_size must be positive, got {batch_size!r}.")
    block = program.global_block()
    names = dict.fromkeys(name for op in block.ops for name in op.output_arg_names)
    total = float(sum(_nbytes(block.vars[n], batch_size) for n in names if n in block.vars))
    unit = 0
    while total > 1024 and unit < 2:
        total, unit = total / 1024, unit + 1
    return total * _SPARE[0], total * _SPARE[1], ("B", "KB", "MB")[unit]


def _nbytes(variable: Variable, batch_size: int) -> int:
    if variable.type != VarType.LOD_TENSOR or variable.shape is None or variable.dtype is None:
        return 0
    if sum(size < 0 for size in variable.shape) > 1:
        raise InvalidValue(
            f"memory_usage: variable {variable.name!r} has two unknown sizes: {list(variable.shape)}."
        )
    sizes = (batch_size if size < 0 else size for size in variable.shape)
    return math.prod(sizes) * to_numpy(variable.dtype).itemsize


Frequencies = list[tuple[str, int]]


def op_freq_statistic(program: Program) -> tuple[Frequencies, Frequencies]:
    """Return how often each op type occurs, and each pair "maker->reader", the most frequent first.

    Raises:
        InvalidType: ``program`` is no Program.
    """
    _check(program, "op_freq_statistic")
    parameters = {p.name for p in program.all_parameters()}
    single: Counter[str] = Counter()
    pairs: Counter[str] = Counter()
    maker: dict[str, str] = {}
    for op in program.global_block().ops:
        single[op.type] += any(name not in parameters for name in op.output_arg_names)
        for name in op.input_arg_names:
            if name in maker and name not in parameters:
                pairs[f"{maker[name]}->{op.type}"] += 1
        maker.update(dict.fromkeys(op.output_arg_names, op.type))
    return (+single).most_common(), pairs.most_common()


def summary(main_prog: Program) -> None:
    """Print, for one sample, parameters and FLOPs of convolutions, products, norms, pooling and activations.

    A multiplication and an addition are two FLOPs. Ops of other types are left out.

    Raises:
        InvalidType: ``main_prog`` is no Program.
    """
    _check(main_prog, "summary")
    rows: list[tuple[str, ...]] = []
    parameters = flops = 0
    for block in main_prog.blocks:
        for op in block.ops:
            op_flops = _flops(block, op)
            if op_flops is None:
                continue
            # A norm's moving statistics are not learned.
            slots = [names for slot, names in op.inputs.items() if slot not in ("Mean", "Variance")]
            variables = (block.find_var_recursive(name) for names in slots for name in names)
            own = sum(math.prod(v.shape or ()) for v in variables if isinstance(v, Parameter))
            source, result = (_sample(block, names) for names in (_data(op), op.output_arg_names))
            rows.append((str(len(rows)), op.type, source, result, str(own), str(op_flops)))
            parameters, flops = parameters + own, flops + op_flops
    print(table(("No.", "TYPE", "INPUT", "OUTPUT", "PARAMs", "FLOPs"), rows))
    print(f"Total PARAMs: {parameters} ({parameters / 1e6:.4f}M)")
    print(f"Total FLOPs: {flops} ({flops / 1e9:.2f}G)")


def _flops(block: Block, op: Operator) -> int | None:
    """Return an op's FLOPs for one sample; None for a type that is not counted."""

    def shape(names: Sequence[str]) -> tuple[int, ...]:
        return tuple(abs(size) for size in block.var_recursive(names[0]).shape or ())

    if op.type in ("conv2d", "depthwise_conv2d", "conv3d"):
        result = shape(op.output("Output"))
        return 2 * math.prod(result[1:]) * math.prod(shape(op.input("Filter"))[1:])
    if op.type in ("conv2d_transpose", "depthwise_conv2d_transpose", "conv3d_transpose"):
        source = shape(op.input("Input"))
        return 2 * math.prod(source[1:]) * math.prod(shape(op.input("Filter"))[1:])
    if op.type in ("pool2d", "pool3d"):
        source, result = shape(op.input("X")), shape(op.output("Out"))
        is_global = op.attr("global_pooling") or op.attr("adaptive")
        window = math.prod(source[2:]) // max(math.prod(result[2:]), 1)
        return math.prod(result[1:]) * (window if is_global else math.prod(op.attr("ksize")))
    if op.type in ("mul", "matmul", "matmul_v2"):
        result, other = shape(op.output("Out")), shape(op.input("Y"))
        transposed = op.type != "mul" and (op.attrs.get("transpose_Y") or op.attrs.get("trans_y"))
        depth = (
            math.prod(shape(op.input("X"))[op.attr("x_num_col_dims") :])
            if op.type == "mul"
            else (other[-1] if transposed or len(other) < 2 else other[-2])
        )
        return 2 * math.prod(result[1:]) * depth
    if op.type == "batch_norm":
        return 2 * math.prod(shape(op.input("X"))[1:])
    return math.prod(shape(op.input("X"))[1:]) if op.type in _ELEMENTWISE else None


def _data(op: Operator) -> list[str]:
    return list(op.input("Input" if "conv2d" in op.type else "X"))


def _sample(block: Block, names: Sequence[str]) -> str:
    first = next((name for name in names if name != EMPTY_VAR), "")
    variable = block.find_var_recursive(first)
    return str(tuple((variable.shape or ())[1:])) if variable is not None else "?"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells under a head, as text."""
    widths = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    rule = "+".join(["", *("-" * (width + 2) for width in widths), ""])

    def line(cells: Sequence[str]) -> str:
        return "|" + "|".join(f" {c:>{w}} " for c, w in zip(cells, widths, strict=True)) + "|"

    return "\n".join([rule, line(head), rule, *map(line, rows), rule])


def _check(program: object, function: str) -> None:
    require_type(program, Program, f"{function} takes a Program")
