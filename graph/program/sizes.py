"""Programs whose ops depend on more sizes of feeds than the number of rows: they are compiled for each size.

A recurrent block is computed once for each step. Where a program declares a size as unknown and the number of
steps depends on it, the program is copied with the size of the feed. Where the feed has another size than the
program declares (``layers.data`` does not check), the size is unknown in the copy.
"""

from __future__ import annotations

from collections.abc import Mapping

from .block import Block
from .clone import copy_program
from .operator import Operator
from .program import Program
from .seeds import keep_seed

Sizes = tuple[tuple[str, tuple[int, ...]], ...]  # of feeds, by name
Dims = frozenset[tuple[str, int]]  # of feeds: name and dimension
# Ops whose number of steps, or whose results, follow from sizes
_READ_SIZES = frozenset({"recurrent", "shape", "size"})


def open_ops(program: Program) -> int:
    """Return how many ops of a program depend on sizes that it leaves open."""
    return sum(_is_open(op) for block in program.blocks for op in block.ops)


def _is_open(op: Operator) -> bool:
    if op.type != "recurrent":
        return False
    shapes = [op.block.var_recursive(name).shape for name in op.inputs.get("inputs", ())]
    return all(shape is None or shape[0] < 0 for shape in shapes)


def reads_sizes(program: Program) -> bool:
    """Tell whether a program computes something else if sizes are not those that it declares."""
    return any(op.type in _READ_SIZES for block in program.blocks for op in block.ops)


def contradicted(program: Program, shapes: Mapping[str, tuple[int, ...]]) -> Dims:
    """Return the dimensions that are declared to have another size than in these shapes of feeds."""
    variables = program.global_block().vars
    dims: set[tuple[str, int]] = set()
    for name, shape in shapes.items():
        variable = variables.get(name)
        if variable is None or variable.persistable or variable.shape is None:
            continue
        if len(variable.shape) == len(shape):
            pairs = enumerate(zip(variable.shape, shape, strict=True))
            dims |= {(name, i) for i, (old, size) in pairs if old >= 0 and old != size}
    return frozenset(dims)


def with_open(program: Program, dims: Dims) -> Program:
    """Return a copy of a program in which the sizes of these dimensions are not known."""
    opened = copy_program(program)
    keep_seed(program, opened)
    for name, dim in dims:
        variable = opened.global_block().vars[name]
        assert variable.shape is not None
        variable.desc.set_shape((*variable.shape[:dim], -1, *variable.shape[dim + 1 :]))
    _infer(opened.global_block())
    return opened


def with_sizes(program: Program, shapes: Mapping[str, tuple[int, ...]], rows: bool) -> Program:
    """Return a copy of a program for feeds of these shapes; without ``rows`` dimension 0 stays open."""
    sized = copy_program(program)
    keep_seed(program, sized)
    for name, shape in shapes.items():
        variable = sized.global_block().vars.get(name)
        if (
            variable is not None
            and variable.shape is not None
            and len(variable.shape) == len(shape)
        ):
            pairs = enumerate(zip(variable.shape, shape, strict=True))
            variable.desc.set_shape(
                [size if old < 0 and (i or rows) else old for i, (old, size) in pairs]
            )
    _infer(sized.global_block())
    return sized


def _infer(block: Block) -> None:
    """Infer the shapes of a block's variables again."""
    for op in block.ops:
        body = op.attrs.get("sub_block")
        steps = -1
        if op.type == "recurrent" and isinstance(body, Block):
            for name in op.inputs.get("inputs", ()):
                steps, *rest = block.var_recursive(name).shape or (-1,)
                body.vars[name].desc.set_shape(rest)
            pairs = zip(op.attrs["ex_states"], op.inputs.get("initial_states", ()), strict=True)
            for state, start in pairs:
                body.vars[state].desc.set_shape(block.var_recursive(start).shape or ())
        if isinstance(body, Block):
            _infer(body)
        op.infer()
        if op.type == "recurrent" and isinstance(body, Block):
            for name in op.outputs.get("outputs", ()):
                declared = block.var_recursive(name).desc
                declared.set_shape((steps, *(body.vars[name].shape or ())))
