"""IfElse: two blocks, each of which computes some rows of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from ...strategies.errors import InvalidType, InvalidValue, require_type
from ..program import unique_name
from ..program.block import Block
from ..program.variable import Variable
from .arguments import check_variable
from .control_flow import ConditionalBlock
from .helper import LayerHelper
from .rank_tables import merge_lod_tensor
from .shape import assign


class IfElse:
    """Two blocks: one gets the rows (or sequences) where ``cond``, bool [N, 1], is true, the other the rest::

    branches = IfElse(small)
    with branches.true_block():
        branches.output(branches.input(x) * 2.0)
    with branches.false_block():
        branches.output(branches.input(x) - 1.0)
    (y,) = branches()

    A block of which an input has no rows gives none, and sets nothing that outlives it.


    Raises:
        InvalidType: ``cond`` is no Variable, or ``name`` no str.
    """

    def __init__(self, cond: Variable, name: str | None = None) -> None:
        require_type(name, str | None, "IfElse: name must be a str")
        self.helper = LayerHelper("ifelse", name)
        self.cond = cond
        self._blocks = {side: ConditionalBlock([cond]) for side in (True, False)}
        self._parts: dict[str, tuple[Variable, Variable]] = {}  # by what was split
        self._outputs: dict[bool, list[Variable]] = {True: [], False: []}
        self._side: bool | None = None

    @contextmanager
    def _branch(self, side: bool) -> Iterator[None]:
        if self._side is not None:
            raise InvalidValue("IfElse: a block cannot stand in the other one.")
        with self._blocks[side].block():
            self._side = side
            try:
                yield
            finally:
                self._side = None
        if not self._outputs[side]:
            name = "true_block" if side else "false_block"
            raise InvalidValue(f"IfElse: {name} must set its output: call output(...) inside.")

    def true_block(self) -> AbstractContextManager[None]:
        """Return the context of the block for the rows where the condition is true."""
        return self._branch(True)

    def false_block(self) -> AbstractContextManager[None]:
        """Return the context of the block for the other rows."""
        return self._branch(False)

    def _parent(self, method: str) -> Block:
        if self._side is None:
            raise InvalidValue(
                f"IfElse.{method}: must be called in true_block() or false_block(), which stand in a with."
            )
        block = self.helper.block
        return block.program.block(block.parent_idx)

    def input(self, x: Variable) -> Variable:
        """The rows (or sequences) of ``x`` that the block computes.

        Raises:
            InvalidValue: called outside a block.
        """
        parent = self._parent("input")
        check_variable(x, "x", "IfElse.input")
        if x.name not in self._parts:
            names = [unique_name.generate(f"ifelse_input{self.helper.name}") for _ in range(2)]
            yes, no = (parent.create_var(name=name, dtype=x.dtype) for name in names)
            outputs = {"OutTrue": yes, "OutFalse": no}
            inputs = {"X": x, "Mask": self.cond}
            parent.append_op("split_lod_tensor", inputs, outputs, {"level": 0})
            self._parts[x.name] = yes, no
        yes, no = self._parts[x.name]
        return yes if self._side else no

    def output(self, *outs: Variable) -> None:
        """Set what the block gives: variables of which both blocks have equally many, of the same types.

        Raises:
            InvalidValue: called outside a block.
        """
        parent = self._parent("output")
        assert self._side is not None
        for each in outs:
            check_variable(each, "each output", "IfElse.output")
            name = unique_name.generate(f"{self.helper.name}_output")
            outside = parent.create_var(name=name, dtype=each.dtype)
            self._outputs[self._side].append(outside)
            assign(each, outside)

    def __call__(self) -> list[Variable]:
        """Return the outputs of both blocks, each row in its place; of one block if the other has none.

        Raises:
            InvalidValue: called in a block, no block was built, or they have different numbers of outputs.
            InvalidType: outputs at one place differ in type.
        """
        if self._side is not None:
            raise InvalidValue("IfElse: its results are for use behind its blocks.")
        yes, no = self._outputs[True], self._outputs[False]
        if not yes and not no:
            raise InvalidValue(
                "IfElse: build true_block or false_block before its results are used."
            )
        if not yes or not no:
            return yes or no
        if len(yes) != len(no):
            raise InvalidValue(
                f"IfElse: both blocks must have equally many outputs; true_block has {len(yes)}, false_block "
                f"{len(no)}."
            )
        for k, (one, other) in enumerate(zip(yes, no, strict=True)):
            if one.dtype != other.dtype:
                raise InvalidType(
                    f"IfElse: output {k} is {one.dtype and one.dtype.name} in true_block and "
                    f"{other.dtype and other.dtype.name} in false_block: cast one of them."
                )
        pairs = zip(yes, no, strict=True)
        return [merge_lod_tensor(one, other, self.cond, self.cond) for one, other in pairs]
