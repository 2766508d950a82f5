"""Updates that count only in some steps: all is computed in each, and a condition chooses what stays.

That is how light branches run, too (``graph/ir/branches.py``). The side that is not taken costs time and
changes nothing: its results are temporaries.
"""

from __future__ import annotations

from ...layers import binary, shape
from ...layers.io import create_global_var
from ...program import unique_name
from ...program.block import Block
from ...program.variable import Variable


def every(steps: int, name: str, *, wraps: bool) -> tuple[Variable, Variable]:
    """Append a count of steps; return it, and a boolean that holds where ``steps`` divides the count.

    The count is the persistable ``name`` (int32); with ``wraps`` it begins anew then.
    """
    count = create_global_var([1], 0, "int32", True, name=name)
    shape.increment(count)
    remainder = binary.elementwise_mod(count, shape.fill_constant([1], "int32", steps))
    if wraps:
        shape.assign(remainder, count)
    return count, binary.equal(remainder, shape.fill_constant([1], "int32", 0))


def choose(block: Block, condition: Variable, new: Variable, old: Variable) -> None:
    """Write ``new`` to ``old`` where the condition holds."""
    inputs = {"Condition": condition, "X": new, "Y": old}
    block.append_op("where", inputs, {"Out": old})


def only_where(block: Block, first: int, condition: Variable) -> None:
    """Let the ops from position ``first`` on change persistables only where the condition holds."""
    results: dict[str, Variable] = {}
    for op in block.ops[first:]:
        for name in set(op.input_arg_names) & results.keys():
            op.rename_input(name, results[name].name)
        for name in dict.fromkeys(op.output_arg_names):
            old = block.vars.get(name)
            if old is not None and old.persistable:
                if name not in results:
                    own = unique_name.generate(f"{name}@CHOICE")
                    results[name] = block.create_var(name=own, shape=old.shape, dtype=old.dtype)
                op.rename_output(name, results[name].name)
    for name, new in results.items():
        choose(block, condition, new, block.var(name))
