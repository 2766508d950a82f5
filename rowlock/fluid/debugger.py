"""``fluid.debugger``: programs as text."""

from __future__ import annotations

from typing import Any

from ..graph.program.block import Block
from ..graph.program.operator import Operator
from ..graph.program.program import Program
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.types import to_numpy, to_var_type


def repr_data_type(type: Any) -> str:
    """Return the name of a dtype, such as ``float32``."""
    return to_numpy(to_var_type(type)).name


def repr_var(var: Variable) -> str:
    """Return a variable as one line."""
    dtype = "?" if var.dtype is None else repr_data_type(var.dtype)
    kind, level = ("LoDTensor", f"level={var.lod_level}, ") if var.lod_level else ("Tensor", "")
    return f"{kind} {var.name} ({level}tensor(type={dtype}, shape={list(var.shape or ())}))"


def repr_op(op: Operator) -> str:
    """Return an op as one line: results, type, operands, attributes."""

    def names(arguments: list[str]) -> str:
        return arguments[0] if len(arguments) == 1 else str(arguments)

    results = ", ".join(names(op.output(slot)) for slot in op.output_names)
    if op.type == "fill_constant":
        return f"{results} = {op.attr('value')} [shape={op.attr('shape')}]"
    operands = ", ".join(f"{slot}={names(op.input(slot))}" for slot in op.input_names)
    attrs = ",".join(f"{name}={value}" for name, value in op.all_attrs().items())
    return f"{results} = {op.type}({operands}) [{{{attrs}}}]"


def _is_backward(names: list[str]) -> bool:
    return any("@GRAD" in name for name in names)


def pprint_block_codes(block_desc: Block, show_backward: bool = False) -> str:
    """Return the variables and ops of a block as text; those of gradients with ``show_backward``."""
    variables = [
        repr_var(var)
        for var in block_desc.vars.values()
        if show_backward or not _is_backward([var.name])
    ]
    ops = [
        repr_op(op)
        for op in block_desc.ops
        if show_backward or not _is_backward(op.input_arg_names + op.output_arg_names)
    ]
    head = f"// block-{block_desc.idx}  parent-{block_desc.parent_idx}"
    return "\n".join([head, "// variables", *variables, "", "// operators", *ops, ""])


def pprint_program_codes(program_desc: Program) -> str:
    """Return the blocks of a program as text, without gradients."""
    return "\n".join(pprint_block_codes(block) for block in program_desc.blocks)


publish_definitions(__name__)
