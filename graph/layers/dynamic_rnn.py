"""DynamicRNN: a block that is computed for each step of sequences of different lengths (LoD)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...strategies.errors import InvalidState, InvalidValue
from ...strategies.types import VarType, to_var_type
from ..program import unique_name
from ..program.block import Block
from ..program.variable import Variable
from .arguments import check_variable
from .arrays import array_read, array_write
from .binary import less_than
from .helper import LayerHelper, check_memory
from .loops import While
from .rank_tables import array_to_lod_tensor, shrink_memory
from .shape import fill_constant, increment


class DynamicRNN:
    """A recurrent net over sequences (LoD), the longest first; each step has those that have not ended::

    rnn = DynamicRNN()
    with rnn.block():
        word = rnn.step_input(words)
        before = rnn.memory(shape=[200], value=0.0)
        hidden = fluid.layers.fc([word, before], 200, act="tanh")
        rnn.update_memory(before, hidden)
        rnn.output(hidden)
    states = rnn()                          # the sequences of words, in their order
    """

    def __init__(self, name: str | None = None) -> None:
        self.helper = LayerHelper("dynamic_rnn", name)
        self.cond = self.helper.new("bool")
        self.while_op = While(self.cond)
        self.outputs: list[Variable] = []
        self._inside = self._complete = False
        self._step: Variable | None = None
        self._zero: Variable | None = None
        self._table: Variable | None = None
        self._longest: Variable | None = None
        self._input_arrays: list[Variable] = []
        self._memory_arrays: dict[str, Variable] = {}
        # the value, and the array that takes it
        self._updates: list[tuple[Variable, Variable]] = []
        self._output_arrays: list[Variable] = []

    @contextmanager
    def block(self) -> Iterator[None]:
        """Have ops built inside compute one step.

        Raises:
            InvalidValue: it was built already, or has no step_input.
        """
        if self._inside or self._complete:
            raise InvalidValue("DynamicRNN: block can be built only once.")
        self._step = step = fill_constant([1], "int64", 0, force_cpu=True)
        self._inside = True
        try:
            with self.while_op.block():
                yield
                if self._longest is None:
                    raise InvalidValue(
                        "DynamicRNN: a block needs a step_input, whose lengths it follows."
                    )
                increment(step)
                for value, array in self._updates:
                    array_write(value, step, array)
                less_than(step, self._longest, force_cpu=True, cond=self.cond)
        finally:
            self._inside = False
        self._complete = True
        assert self._table is not None
        self.outputs = [array_to_lod_tensor(array, self._table) for array in self._output_arrays]

    def _parent(self, method: str) -> Block:
        if not self._inside:
            raise InvalidValue(
                f"DynamicRNN.{method}: can only be invoked inside rnn block (with rnn.block())."
            )
        block = self.helper.block
        return block.program.block(block.parent_idx)

    def _current(self) -> Variable:
        assert self._step is not None
        return self._step

    def _ranked(self, method: str) -> Variable:
        """Return the rank table of the first step_input."""
        if self._table is None:
            raise InvalidState(f"DynamicRNN.{method}: must be called after step_input().")
        return self._table

    def step_input(self, x: Variable, level: int = 0) -> Variable:
        """The rows of ``x`` that belong to the step: one of each sequence that has not ended.

        Sequences of all inputs are as long as those of the first, at ``level``.

        Raises:
            InvalidType: ``x`` is no Variable.
            InvalidValue: called outside the block, or ``x`` is made in it.
        """
        parent = self._parent("step_input")
        check_variable(x, "x", "DynamicRNN.step_input")
        if x.block is self.helper.block:
            raise InvalidValue(
                f"DynamicRNN.step_input: {x.name!r} is made in the step; sequences are made before it."
            )
        if self._table is None:
            self._rank(parent, x, level)
        name = unique_name.generate("dynamic_rnn_input_array")
        array = parent.create_var(name=name, type=VarType.LOD_TENSOR_ARRAY, dtype=x.dtype)
        parent.append_op("lod_tensor_to_array", {"X": x, "RankTable": self._table}, {"Out": array})
        self._input_arrays.append(array)
        return array_read(array, self._current())

    def _rank(self, parent: Block, x: Variable, level: int) -> None:
        """Begin the loop: rank the sequences, and compare the step with the length of the longest."""
        self._table = parent.create_var(
            name=unique_name.generate("lod_rank_table"),
            type=VarType.LOD_RANK_TABLE,
            stop_gradient=True,
        )
        parent.append_op("lod_rank_table", {"X": x}, {"Out": self._table}, {"level": level})
        name = unique_name.generate("dynamic_rnn_max_seq_len")
        self._longest = parent.create_var(name=name, dtype="int64")
        parent.append_op("max_sequence_len", {"RankTable": self._table}, {"Out": self._longest})
        self.cond.stop_gradient = True
        parent.append_op(
            "less_than",
            {"X": self._step, "Y": self._longest},
            {"Out": self.cond},
            {"force_cpu": True},
        )

    def _reordered(self, parent: Block, x: Variable, name: str) -> Variable:
        result = parent.create_var(name=unique_name.generate(name), dtype=x.dtype)
        inputs = {"X": x, "RankTable": self._table}
        parent.append_op("reorder_lod_tensor_by_rank", inputs, {"Out": result})
        return result

    def static_input(self, x: Variable) -> Variable:
        """Those sequences (or rows) of ``x``, one for each of the step_input, whose sequence has not ended.

        Raises:
            InvalidState: called before step_input.
            InvalidValue: called outside the block.
        """
        parent = self._parent("static_input")
        check_variable(x, "x", "DynamicRNN.static_input")
        table = self._ranked("static_input")
        ordered = self._reordered(parent, x, "dynamic_rnn_static_input_reordered")
        return shrink_memory(ordered, self._current(), table)

    def memory(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        value: float = 0.0,
        need_reorder: bool = False,
        dtype: Any = "float32",
    ) -> Variable:
        """A value that each step reads and sets: in the first ``init``, or ``value`` in rows of ``shape``.

        Args:
            init: a row for each sequence, in the order of their lengths, the longest first; with
                ``need_reorder`` in the order of the sequences.
            shape: the sizes of a row, without that of the batch.

        Raises:
            InvalidType: ``init`` is no Variable.
            InvalidValue: called outside the block, or before step_input where that is needed.
        """
        parent = self._parent("memory")
        if self._zero is None:
            name = unique_name.generate("zero_idx")
            self._zero = parent.create_var(name=name, dtype="int64")
            attrs = {"shape": [1], "dtype": int(VarType.INT64), "value": 0.0, "force_cpu": True}
            parent.append_op("fill_constant", {}, {"Out": self._zero}, attrs)
        if self._table is None:
            raise InvalidValue(
                "DynamicRNN.memory: step_input should be invoked before memory: its sequences tell the rows."
            )
        if init is None:
            init = self._boot(parent, shape, value, dtype)
        else:
            check_variable(init, "init", "DynamicRNN.memory")
            if need_reorder:
                init = self._reordered(parent, init, "dynamic_rnn_mem_init_reordered")
        name = unique_name.generate("dynamic_rnn_mem_array")
        array = parent.create_var(name=name, type=VarType.LOD_TENSOR_ARRAY, dtype=init.dtype)
        parent.append_op("write_to_array", {"X": init, "I": self._zero}, {"Out": array})
        before = shrink_memory(array_read(array, self._current()), self._current(), self._table)
        self._memory_arrays[before.name] = array
        return before

    def _boot(self, parent: Block, shape: Any, value: float, dtype: Any) -> Variable:
        """Return rows of one value, as many as there are sequences."""
        if not isinstance(shape, (list, tuple)):
            raise InvalidValue(
                f"DynamicRNN.memory: needs init, or the shape of a row as a list, got {shape!r}."
            )
        start = parent.create_var(name=unique_name.generate("mem_init"), dtype=dtype)
        array = self._input_arrays[0]
        first = parent.create_var(name=unique_name.generate("in0"), dtype=array.dtype)
        parent.append_op("read_from_array", {"X": array, "I": self._zero}, {"Out": first})
        attrs = {"shape": [-1, *shape], "value": float(value), "dtype": int(to_var_type(dtype))}
        parent.append_op("fill_constant_batch_size_like", {"Input": first}, {"Out": start}, attrs)
        return start

    def update_memory(self, ex_mem: Variable, new_mem: Variable) -> None:
        """Set the memory ``ex_mem`` to ``new_mem``, of its shape and type, for the next step.

        Raises:
            InvalidType: an argument is no Variable.
            InvalidValue: called outside the block, ``ex_mem`` is no memory of this net, or ``new_mem`` has
                another shape or type.
        """
        self._parent("update_memory")
        check_variable(ex_mem, "ex_mem", "DynamicRNN.update_memory")
        check_variable(new_mem, "new_mem", "DynamicRNN.update_memory")
        if ex_mem.name not in self._memory_arrays:
            raise InvalidValue(
                f"DynamicRNN.update_memory: {ex_mem.name!r} is no memory of this net: call memory first."
            )
        check_memory(ex_mem, new_mem, "DynamicRNN.update_memory")
        self._updates.append((new_mem, self._memory_arrays[ex_mem.name]))

    def output(self, *outputs: Variable) -> None:
        """Have the net return what these are in each step, as sequences.

        Raises:
            InvalidValue: called outside the block.
        """
        parent = self._parent("output")
        for each in outputs:
            check_variable(each, "each output", "DynamicRNN.output")
            name = unique_name.generate(f"{self.helper.name}_output_array_{each.name}")
            array = parent.create_var(name=name, type=VarType.LOD_TENSOR_ARRAY, dtype=each.dtype)
            array_write(each, self._current(), array)
            self._output_arrays.append(array)

    def __call__(self) -> Any:
        """Return what the steps put out: a Variable, or a list of them.

        Raises:
            InvalidValue: the block is not built, or has no output.
        """
        if not self._complete:
            raise InvalidValue(
                "DynamicRNN: output of the dynamic RNN can only be visited outside the rnn block."
            )
        if not self.outputs:
            raise InvalidValue("DynamicRNN: it has no output: call output(...) in its block.")
        return self.outputs[0] if len(self.outputs) == 1 else self.outputs
