"""Runs a server's optimize blocks on the tensors of its scope; each is compiled once, like any program."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from ...graph.program.program import Program
from ...graph.transpiler.server_program import Gradient, ServerProgram, fed_rows
from ...strategies.errors import InvalidValue, NotInitialized, ShapeError, first_of
from ...strategies.types import to_numpy
from ..device.place import CPUPlace
from ..device.tensor import Tensor
from ..driver.local import LocalRun
from ..feed.fetches import Fetches
from ..feed.scope import Scope
from ..gang.local import LocalGang
from ..rpc.messages import Push

Array = np.ndarray[Any, Any]
Parts = Sequence[tuple[Array, Array]]  # numbers and values of rows, by the trainer that pushed them
_LEAST_ROWS = 16


class Updates:
    """The tensors that pushes are written to, and the programs that read them.

    Raises:
        NotInitialized: a parameter holds no value: the server's startup program was not run in this scope.
    """

    def __init__(self, server: ServerProgram, scope: Scope) -> None:
        self.server, self.scope = server, scope
        self._place = CPUPlace()
        self._gang = LocalGang(self._place)
        self._runs: dict[Hashable, LocalRun] = {}
        self._first: LocalRun | None = None
        self._specs: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        self._own = {
            name: self.tensor(name).allocate(*self._spec(name))
            for name, gradient in server.by_pushed.items()
            if not gradient.rows
        }
        for name in server.scheduled:
            self.tensor(name).allocate(*self._spec(name))
        missing = [n for n in sorted(server.lasting) if not self.tensor(n).initialized]
        if missing:
            raise NotInitialized(
                f"{len(missing)} variable(s) of the server hold no value in the scope: "
                f"{first_of(map(repr, missing))}. Run its startup program first: "
                f"exe.run(transpiler.get_startup_program(endpoint, pserver_program)), or fleet.init_server()."
            )
        for name in server.counters:  # trainers' steps so far
            self.memory(name)[...] = 0

    def tensor(self, name: str) -> Tensor:
        """Return the tensor of a name in the scope."""
        return self.scope.home(name).get_tensor()

    def memory(self, name: str) -> Array:
        """Return the memory of a variable of the scope."""
        array: Array = self.tensor(name).memory()
        return array

    def _spec(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return the shape and element type that the server's program declares."""
        if name not in self._specs:
            dtype = self.server.program.global_block().var(name).dtype
            assert dtype is not None
            self._specs[name] = self.server.shape(name), to_numpy(dtype)
        return self._specs[name]

    # -- checks ---------------------------------------------------------------------------------

    def check(self, push: Push, gradient: Gradient) -> None:
        """Refuse a push that does not fit the variable.

        Raises:
            ShapeError: shape or element type differ, or rows where a tensor is due (or the reverse).
            InvalidValue: a row that the table does not have.
        """
        what = f"trainer {push.trainer} pushes {push.name!r} in step {push.number}"
        own_shape, dtype = self._spec(gradient.param)
        if (push.rows is not None) != gradient.rows:
            kinds = ("rows of a table", "a tensor")
            raise ShapeError(
                f"{what} as {kinds[push.rows is None]}, but the server's program has it as "
                f"{kinds[not gradient.rows]}. Transpile trainers and servers from the same program."
            )
        shape = push.values.shape
        fits = shape == own_shape or (
            push.rows is not None and shape == (len(push.rows), *own_shape[1:])
        )
        if not fits or push.values.dtype != dtype:
            raise ShapeError(
                f"{what} as {push.values.dtype}{list(shape)}, but the server holds {gradient.param!r} as "
                f"{dtype}{list(own_shape)}. Transpile trainers and servers from the same program."
            )
        if push.rows is not None:
            check_rows(what, push.rows, own_shape[0])

    # -- updates --------------------------------------------------------------------------------

    def place(self, name: str, lent: Array | None = None) -> Array:
        """Return the memory that a block reads a gradient from, which may be lent until :meth:`keep`."""
        memory = self._own[name] if lent is None else lent
        if self.memory(name) is not memory:
            self.tensor(name).adopt(memory)
        return memory

    def write(self, name: str, values: Array) -> None:
        """Put a push into the memory that its block reads."""
        if self.memory(name) is not values:
            np.copyto(self.place(name), values)

    def keep(self, name: str) -> None:
        """Copy a gradient that lies in memory that was lent."""
        if name in self._own and (lent := self.memory(name)) is not self._own[name]:
            np.copyto(self.place(name), lent)

    def schedule(self) -> None:
        """Compute the learning rate of the next step."""
        if "schedule" not in self._runs:
            program = self.server.schedule()
            if program is None:
                return
            self._runs["schedule"] = self._new(program)
        self._runs["schedule"].run({}, Fetches())

    def update(
        self,
        names: Sequence[str],
        trainers: Collection[int],
        rows: Mapping[str, Parts],
        trainer: int | None = None,
    ) -> None:
        """Update by gradients, merged over trainers; ``rows``: those of sparse ones, by gradient.

        ``trainer``: in DC-ASGD, whose gradient it is.
        """
        delayed = trainer if self.server.dc_asgd else None
        key = (tuple(names), tuple(sorted(trainers)), delayed)
        if key not in self._runs:
            server = self.server
            self._runs[key] = self._new(
                server.update(names, trainers)
                if delayed is None
                else server.compensated(names[0], delayed)
            )
        feed: dict[str, Array] = {}
        for name, parts in rows.items():
            table = self.memory(self.server.gradients[name].param)
            feed |= zip(fed_rows(name), _joined(parts, table), strict=True)
        self._runs[key].run(feed, Fetches())

    def _new(self, program: Program) -> LocalRun:
        run = LocalRun(
            program,
            [self._place],
            self.scope,
            share_with=self._first,
            gang=self._gang,
            plain=True,
        )
        self._first = self._first or run
        return run

    @property
    def compilations(self) -> int:
        """How many programs of blocks were compiled."""
        return sum(run.compilations for run in self._runs.values())

    def close(self) -> None:
        """Forget all that was compiled."""
        self._runs.clear()
        self._gang.close()


def check_rows(what: str, rows: Array, height: int) -> None:
    """Refuse numbers of rows that a table does not have.

    Raises:
        InvalidValue: names the first of them.
    """
    wrong = rows[(rows < 0) | (rows >= height)]
    if wrong.size:
        raise InvalidValue(
            f"{what}: row {int(wrong[0])} is not in this server's part of the table, which has {height} rows."
        )


def _joined(parts: Parts, table: Array) -> tuple[Array, Array]:
    """Return rows behind each other, their number rounded up, so that few sizes are bound.

    What is added names rows behind the table, with zeros, which no update takes: rows in order stay so.
    """
    count = sum(len(numbers) for numbers, _ in parts)
    size = max(_LEAST_ROWS, 1 << max(count - 1, 0).bit_length())
    rows = np.empty(size, np.int64)
    values = np.zeros((size, *table.shape[1:]), table.dtype)
    first = 0
    for numbers, pushed in parts:
        end = first + len(numbers)
        rows[first:end], values[first:end] = numbers, pushed
        first = end
    rows[count:] = len(table) + np.arange(size - count)
    return rows, values
