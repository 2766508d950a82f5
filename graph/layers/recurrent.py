"""StaticRNN: a block that is computed once for each step of sequences of one length."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...strategies.errors import InvalidArgument, InvalidValue, require_type
from ...strategies.types import VarType
from ..program import unique_name
from ..program.block import Block
from ..program.variable import Variable
from .arguments import check_variable
from .control_flow import around, captured, sub_block
from .helper import LayerHelper, check_memory


@dataclass
class _Memory:
    """A memory of a step: its initial value, the name it is read by, and the value it is set to."""

    initial: Variable
    before: Variable
    after: Variable | None = None


class StaticRNN:
    """A recurrent net over sequences [T, batch, ...]; the program is compiled for each T::

    rnn = StaticRNN()
    with rnn.step():
        word = rnn.step_input(words)                                  # [batch, ...]
        before = rnn.memory(shape=[-1, 200], batch_ref=words)
        hidden = fluid.layers.fc([word, before], 200, act="relu")
        rnn.update_memory(before, hidden)
        rnn.step_output(hidden)
    states = rnn()                                                    # [T, batch, 200]
    """

    def __init__(self, name: str | None = None) -> None:
        require_type(name, str | None, "StaticRNN: name must be a str")
        self.helper = LayerHelper("static_rnn", name)
        self.memories: dict[str, _Memory] = {}
        self.inputs: list[Variable] = []
        self.outputs: list[Variable] = []
        self.seq_len: int | None = None
        self._block: Block | None = None
        self._complete = False

    @contextmanager
    def step(self) -> Iterator[None]:
        """Have ops built inside compute one step."""
        with sub_block(self.helper.main_program, self._append) as self._block:
            yield
        self._block, self._complete = None, True

    def _inside(self, method: str) -> Block:
        if self._block is None:
            raise InvalidValue(
                f"StaticRNN: you must invoke {method} in rnn block (with rnn.step())."
            )
        return self._block

    def memory(
        self,
        init: Variable | None = None,
        shape: Any = None,
        batch_ref: Variable | None = None,
        init_value: float = 0.0,
        init_batch_dim_idx: int = 0,
        ref_batch_dim_idx: int = 1,
    ) -> Variable:
        """A value that each step reads and sets; in the first it is ``init``, or ``init_value`` in ``shape``.

        The size of that at ``init_batch_dim_idx`` is that of ``batch_ref``, a variable outside the step, at
        ``ref_batch_dim_idx``.

        Raises:
            InvalidType: an argument of another type.
            InvalidValue: called outside a step, or neither ``init`` nor ``shape`` and ``batch_ref`` are given.
        """
        block = self._inside("memory")
        for argument, variable in (("init", init), ("batch_ref", batch_ref)):
            if variable is not None:
                check_variable(variable, argument, "StaticRNN.memory")
        require_type(shape, list | tuple | None, "StaticRNN.memory: shape must be a list or tuple")
        if init is None:
            if shape is None or batch_ref is None:
                raise InvalidValue(
                    "StaticRNN: if init is None, memory at least need shape and batch_ref."
                )
            init = self._boot(shape, batch_ref, init_value, init_batch_dim_idx, ref_batch_dim_idx)
        if init.block is block:
            raise InvalidValue(
                f"StaticRNN.memory: init {init.name!r} is computed in the step, so the first has none. "
                "Compute it (a subscript, too) before `with rnn.step()`."
            )
        before = block.create_var(
            name=unique_name.generate(f"{self.helper.name}@mem"), dtype=init.dtype, shape=init.shape
        )
        self.memories[before.name] = _Memory(init, before)
        return before

    def _boot(
        self, shape: Any, batch_ref: Variable, value: float, batch_dim: int, ref_dim: int
    ) -> Variable:
        parent = self._parent()
        boot = parent.create_var(
            name=unique_name.generate(f"{self.helper.name}@memory_boot"),
            shape=shape,
            dtype=batch_ref.dtype,
        )
        attrs = {
            "value": float(value),
            "shape": list(shape),
            "dtype": int(batch_ref.dtype or VarType.FP32),
            "input_dim_idx": ref_dim,
            "output_dim_idx": batch_dim,
        }
        parent.append_op(
            "fill_constant_batch_size_like", {"Input": batch_ref}, {"Out": boot}, attrs
        )
        return boot

    def _parent(self) -> Block:
        block = self._inside("a method of the step")
        return block.program.block(block.parent_idx)

    def step_input(self, x: Variable) -> Variable:
        """The part of a sequence ``x`` [T, ...] that belongs to the step: [...].

        Raises:
            InvalidValue: the length differs from that of another sequence, ``x`` is made in the step, or called
                outside a step.
        """
        block = self._inside("step_input")
        check_variable(x, "x", "StaticRNN.step_input")
        if x.block is block:
            raise InvalidValue(
                f"StaticRNN.step_input: {x.name!r} is made in the step; sequences are made before it."
            )
        length, *sizes = x.shape or ()
        if self.seq_len is None:
            self.seq_len = length
        elif length not in (-1, self.seq_len):
            raise InvalidValue(
                f"Static RNN only take fix seq_len input: {x.name!r} has {length} steps, those before have "
                f"{self.seq_len}."
            )
        now = block.create_var(name=x.name, dtype=x.dtype, shape=sizes, type=x.type)
        self.inputs.append(now)
        return now

    def _keep(self, value: Variable) -> Variable:
        attrs = {"dtype": int(value.dtype or VarType.FP32)}
        return self.helper.layer("rnn_memory_helper", x=value, **attrs)

    def step_output(self, o: Variable) -> None:
        """Have the net return what ``o`` is in each step, as [T, ...].

        Raises:
            InvalidValue: called outside a step.
        """
        self._inside("step_output")
        check_variable(o, "o", "StaticRNN.step_output")
        result = self._keep(o)
        shape = [-1 if self.seq_len is None else self.seq_len, *(result.shape or ())]
        self.outputs.append(
            self._parent().create_var(name=result.name, shape=shape, dtype=result.dtype)
        )

    def output(self, *outputs: Variable) -> None:
        """Have the net return several variables."""
        for each in outputs:
            self.step_output(each)

    def update_memory(self, mem: Variable, var: Variable) -> None:
        """Set the memory ``mem`` to ``var``, of its shape and type, for the next step.

        Raises:
            InvalidValue: ``mem`` is no memory of this net, or ``var`` has another shape or type.
        """
        check_variable(mem, "mem", "StaticRNN.update_memory")
        check_variable(var, "var", "StaticRNN.update_memory")
        if mem.name not in self.memories:
            raise InvalidValue(f"StaticRNN.update_memory: {mem.name!r} is no memory of this net.")
        check_memory(mem, var, "StaticRNN.update_memory")
        self.memories[mem.name].after = var

    def __call__(self) -> Any:
        """Return what the steps put out: a Variable, or a list of them.

        Raises:
            InvalidValue: the step is not built, or has no output.
        """
        if not self._complete:
            raise InvalidValue("StaticRNN: RNN output can only be retrieved after rnn block.")
        if not self.outputs:
            raise InvalidValue("StaticRNN: RNN has no output.")
        return self.outputs[0] if len(self.outputs) == 1 else self.outputs

    def _append(self, block: Block) -> None:
        """Append the op that computes the block for every step."""
        if self.seq_len is None:
            raise InvalidValue("StaticRNN: a step needs a step_input, whose length it follows.")
        parent = block.program.block(block.parent_idx)
        for memory in self.memories.values():
            if memory.after is None:
                raise InvalidArgument(
                    f"StaticRNN: {memory.initial.name} should be updated in every step: call update_memory."
                )
        reads, _ = captured(block)
        own = {v.name for v in self.inputs} | self.memories.keys()
        parameters = around(block, [name for name in reads if name not in own])
        memories = list(self.memories.values())
        states = [self._keep(m.after).name for m in memories if m.after is not None]
        parent.append_op(
            "recurrent",
            {
                "inputs": [parent.var_recursive(v.name) for v in self.inputs],
                "initial_states": [m.initial for m in memories],
                "parameters": parameters,
            },
            {"outputs": self.outputs, "step_scopes": parent.create_var(type=VarType.STEP_SCOPES)},
            {
                "has_states": bool(memories),
                "ex_states": [m.before.name for m in memories],
                "states": states,
                "sub_block": block,
            },
        )
