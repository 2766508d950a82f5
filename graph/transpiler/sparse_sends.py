"""Let gradients of tables be rows from their lookups to where they are sent, for the table is on servers alone.

The gradient's variable becomes the values [rows, width] of merged rows, whose numbers stand beside it under the
name plus ``@ROWS``. Ops that act row by row (a clip, a scale) do so on the values as they did on the gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...strategies.errors import Unsupported
from ...strategies.types import VarType
from ..program.block import Block
from ..program.operator import Operator
from ..program.program import Program
from ..program.role import ROLE, ROLE_VAR

ROWS = "@ROWS"
GRADIENTS = ("lookup_table_grad", "lookup_table_v2_grad")
# By op type, the slot of the rows that an op makes (none: numbers, which rows of zeros leave as they are).
_BY_ROW: Mapping[str, str] = {
    "assign": "Out",
    "merge_selected_rows": "Out",
    "get_tensor_from_selected_rows": "Out",
    "clip": "Out",
    "clip_by_norm": "Out",
    "scale": "Out",
    "elementwise_mul": "Out",
    "elementwise_div": "Out",
    "square": "Out",
    "squared_l2_norm": "",
    "reduce_sum": "",
}


def send_as_rows(program: Program, heights: Mapping[str, int]) -> bool:
    """Rewrite the gradients of tables that are sent, by name, in place; tell whether an op acts on merged rows.

    Raises:
        Unsupported: an op between lookup and send does not act row by row.
    """
    block = program.global_block()
    chains = [_chain(block, name) for name in heights]
    for name, chain in zip(heights, chains, strict=True):
        _rewrite(block, name, chain, heights[name])
    program.touch()
    return any(len(chain) > 1 for chain in chains)


def _chain(block: Block, name: str) -> list[str]:
    """Return the names from the gradient that lookups make to the one that is sent."""
    names = [name]
    while True:
        writers = [op for op in block.ops if names[0] in op.output_arg_names]
        if not writers:
            raise Unsupported(
                f"send: no op makes the rows {name!r} that are sent from a lookup of the table."
            )
        writer = writers[-1]
        if writer.type in (*GRADIENTS, "sum"):
            return names
        if not _BY_ROW.get(writer.type):
            raise Unsupported(
                f"{writer.type} makes {names[0]!r} of rows of a table on parameter servers, which it "
                f"cannot take row by row. {writer.where}"
            )
        names.insert(0, writer.inputs["X"][0])


def _rewrite(block: Block, variable: str, chain: Sequence[str], height: int) -> None:
    """Let a gradient be merged rows, and all that is computed from it as well."""
    gradient = chain[0]
    width = (block.var(gradient).shape or (0, 0))[-1]
    lookups, at = _take_lookups(block, gradient)
    writer = _RowsWriter(block, lookups[-1], width, block.var(gradient).dtype)
    for name in chain:
        declared = block.var(name).desc
        declared.set_shape((-1, width))
        declared.set_type(VarType.LOD_TENSOR)
    parts = [
        writer.rows_of(lookup, f"{gradient}@{number}", height)
        for number, lookup in enumerate(lookups)
    ]
    whole = writer.joined(parts, f"{gradient}@ALL") if len(parts) > 1 else parts[0]
    writer.merge(whole, gradient, height)
    block.ops[at:at] = writer.ops
    if variable != gradient:
        block.ops.append(writer.copied(gradient + ROWS, variable + ROWS))
    _refuse_others(block, chain, writer.ops)


class _RowsWriter:
    """Makes the ops on rows of one table; ``ops`` are those to be inserted. Rows go by (numbers, values)."""

    def __init__(self, block: Block, like: Operator, width: int, dtype: VarType | None) -> None:
        self.block, self.like, self.width, self.dtype = block, like, width, dtype
        self.ops: list[Operator] = []

    def _declare(self, name: str) -> tuple[str, str]:
        rows, values = f"{name}@NUMBERS", f"{name}@VALUES"
        self.block.create_var(name=rows, shape=[-1], dtype="int64")
        self.block.create_var(name=values, shape=[-1, self.width], dtype=self.dtype)
        return rows, values

    def rows_of(self, lookup: Operator, name: str, height: int) -> tuple[str, str]:
        """Return the rows that the gradient of a lookup is made of."""
        rows, values = self._declare(name)
        inputs = {slot: lookup.inputs[slot] for slot in ("Ids", "Out@GRAD")}
        attrs = {"padding_idx": lookup.attrs["padding_idx"], "height": height}
        outputs = {"Rows": [rows], "Values": [values]}
        self.ops.append(_op(lookup, "embedding_rows", inputs, outputs, attrs))
        return rows, values

    def joined(self, parts: Sequence[tuple[str, str]], name: str) -> tuple[str, str]:
        """Return rows behind each other."""
        whole = self._declare(name)
        for names, out in zip(zip(*parts, strict=True), whole, strict=True):
            slots = {"X": list(names)}, {"Out": [out]}
            self.ops.append(_op(self.like, "concat", *slots, {"axis": 0}))
        return whole

    def merge(self, whole: tuple[str, str], gradient: str, height: int) -> None:
        """Write merged rows to a gradient's variable, and their numbers beside it."""
        self.block.create_var(name=gradient + ROWS, shape=[-1], dtype="int64")
        inputs = {"Rows": [whole[0]], "Values": [whole[1]]}
        outputs = {"OutRows": [gradient + ROWS], "OutValues": [gradient]}
        self.ops.append(_op(self.like, "merge_rows", inputs, outputs, {"height": height}))

    def copied(self, source: str, target: str) -> Operator:
        """Return the op that copies the numbers of rows."""
        self.block.create_var(name=target, shape=[-1], dtype="int64")
        return _op(self.like, "assign", {"X": [source]}, {"Out": [target]}, {})


def _take_lookups(block: Block, gradient: str) -> tuple[list[Operator], int]:
    """Take the ops that make a table's gradient out of a block; return those of lookups, and their place."""
    numbers = [k for k, op in enumerate(block.ops) if gradient in op.output_arg_names]
    last = block.ops[numbers[-1]]
    names = last.inputs["X"] if last.type == "sum" else [gradient]
    makers = [k for k, op in enumerate(block.ops) if set(names) & set(op.output_arg_names)]
    lookups = [block.ops[k] for k in makers if block.ops[k].type in GRADIENTS]
    wrong = [
        block.ops[k] for k in makers if block.ops[k] not in lookups and block.ops[k] is not last
    ]
    if wrong:
        raise Unsupported(
            f"{wrong[0].type} adds to the gradient {gradient!r} of a table on parameter servers, which only "
            f"lookups can. {wrong[0].where}"
        )
    removed_indices = {*makers, *numbers}
    at = numbers[-1] - sum(k < numbers[-1] for k in removed_indices)
    block.ops = [op for k, op in enumerate(block.ops) if k not in removed_indices]
    return lookups, at


def _op(
    like: Operator,
    type: str,
    inputs: Mapping[str, Sequence[str]],
    outputs: Mapping[str, Sequence[str]],
    attrs: Mapping[str, object],
) -> Operator:
    op = Operator(like.block, type, inputs, outputs, {**attrs, ROLE: like.attrs.get(ROLE, 1)})
    op.attrs.update({k: v for k, v in like.attrs.items() if k == "op_callstack"})
    op.attrs[ROLE_VAR] = []  # replicas do not add these up: what each has is sent
    return op


def _refuse_others(block: Block, chain: Sequence[str], own: Sequence[Operator]) -> None:
    """Refuse ops beside the chain that read its rows and do not act row by row."""
    for op in block.ops:
        reads = set(op.input_arg_names) & set(chain)
        if reads and op not in own and op.type not in _BY_ROW:
            raise Unsupported(
                f"{op.type} reads {min(reads)!r}, rows of a table on parameter servers, which it cannot "
                f"take row by row. {op.where}"
            )
        if reads and op not in own:
            op.attrs[ROLE_VAR] = []
            op.infer()
