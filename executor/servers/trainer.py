"""Runs a trainer's program: the step is computed like any other, and exchanged with servers around that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...graph.transpiler.exchange import Exchange
from ...graph.transpiler.sparse_sends import ROWS
from ...strategies.current import current_config
from ...strategies.errors import FeedError, InvalidType, Unsupported
from ...strategies.types import to_numpy
from ..device.place import CPUPlace
from ..device.tensor import Tensor
from ..driver.local import LocalRun
from ..driver.parallel import ParallelRun
from ..feed.fetches import Fetches, Joined, as_fetched, as_tensor
from ..feed.reader import batches_for
from ..feed.scope import Scope
from ..gang.local import LocalGang
from .geo import SharedChanges
from .session import Session, session_for

Array = np.ndarray[Any, Any]


class Finished:
    """The result of a step that is over: the next one needs what it received."""

    def __init__(self, results: list[Any]) -> None:
        self._results = results

    def result(self) -> list[Any]:
        """Return what was fetched."""
        return self._results

    def done(self) -> bool:
        """Return True."""
        return True


class TrainerRun:
    """Steps of a trainer's program: rows are looked up, the step is computed, gradients go, parameters come.

    On several places gradients were added up, or their rows put behind each other, before they are sent once.
    """

    def __init__(self, exchange: Exchange, run: ParallelRun, scope: Scope) -> None:
        self.exchange, self.inner, self.scope = exchange, run, scope
        self.session: Session = session_for(exchange)
        self._places = len(run.places)
        self._iterations = max(run.execution.num_iteration_per_run, 1)
        run.iterations = 1  # what a step receives is read by the next
        run.lent = len(exchange.fetches)  # it is sent before that
        if exchange.merged_rows and self._places > 1:
            raise Unsupported(
                "a clip of gradients that are rows of a table on parameter servers acts on the rows of one "
                "place. Run the trainer on one place."
            )
        self._ids_runs: dict[str, LocalRun] = {}
        self._shared: SharedChanges | None = None
        self._counters = [sent.variable for sent in exchange.sent if sent.counts]
        self._received = {received.variable for received in exchange.received}

    def run(self, feed: Any, fetches: Fetches) -> list[Any]:
        """Run a step (or ``num_iteration_per_run``); return what the last one fetches.

        Raises:
            ServerLost: a server is not there within the deadline.
            TrainerLost: servers wait for another trainer, which does not come.
        """
        for _ in range(self._iterations - 1):
            self._step(feed, Fetches())
        return self._step(feed, fetches)

    def start(self, feed: Any, fetches: Fetches, ahead: bool = False) -> Finished:
        """Run a step; it is over when this returns, for the next one needs what it receives."""
        return Finished(self.run(feed, fetches))

    def _step(self, feed: Any, fetches: Fetches) -> list[Any]:
        exchange = self.exchange
        late = [name for name in fetches.names if name in self._received]
        own = tuple(name for name in fetches.names if name not in self._received)
        if exchange.lookups:
            feed = self._with_rows(feed)
        if exchange.changes is not None and self._shared is None:
            self._shared = SharedChanges(exchange, exchange.changes, self.session, self.scope)
        self.session.drain()
        parts = self._computed(feed, fetches._replace(names=own))
        if self._shared is not None:
            self._shared.stepped()
        else:
            with self.session.turn:  # what came may be the servers' memory, until the next push
                self._receive(self.session.exchange(exchange, self._values(parts[len(own) :])))
        self.session.save(exchange.saved)
        for name in exchange.remote:
            self.scope.home(name).get_tensor().absence = _absence(name, exchange.endpoints)
        results = {
            name: _joined(name, each, fetches.as_numpy) if fetches.merged else each
            for name, each in zip(own, parts, strict=False)
        }
        results |= {name: self._fetched(name, fetches) for name in late}
        return [results[name] for name in fetches.names]

    def _computed(self, feed: Any, fetches: Fetches) -> list[list[Any]]:
        """Return the places' values of fetches, and then of what is sent."""
        names = fetches.names
        if not self.exchange.compute.global_block().ops:
            if names:
                raise FeedError(f"fetch {names[0]!r}: the program computes nothing, it exchanges.")
            return []
        pushes, count = self.exchange.fetches, len(names)
        as_numpy = fetches.as_numpy or not names
        sent = Fetches((*names, *pushes), as_numpy, merged=False, updates=fetches.updates)
        parts = self.inner.run(feed, sent)
        if as_numpy:
            return parts
        return [*parts[:count], *([np.asarray(p) for p in each] for each in parts[count:])]

    def describe(self) -> list[str]:
        """Return what servers tell of their steps, and of how stale gradients were, a line each."""
        return [_described(report.facts) for report in self.session.reports()]

    # -- values ---------------------------------------------------------------------------------

    def _values(self, parts: Sequence[Sequence[Array]]) -> Mapping[str, Array]:
        """Return what is sent, by name: of tensors any place's, for they are alike; of rows all places'."""
        values: dict[str, Array] = {name: self._memory(name) for name in self._counters}
        for name, each in zip(self.exchange.fetches, parts, strict=True):
            values[name] = np.asarray(each[0])
            if len(each) > 1 and (name.endswith(ROWS) or name + ROWS in self.exchange.fetches):
                values[name] = np.concatenate([np.asarray(part) for part in each])
        return values

    def _memory(self, name: str) -> Array:
        array: Array = self.scope.home(name).get_tensor().memory()
        return array

    def _receive(self, arrays: Mapping[str, Array]) -> None:
        """Write what came to the scope, whose tensors are the program's own, or are sent to its places."""
        with self.scope.turn:
            for received in self.exchange.received:
                tensor = self.scope.home(received.variable).get_tensor()
                memory = self._room(tensor, received.variable)
                for piece in received.pieces:
                    piece.of(memory)[...] = arrays[piece.name].reshape(piece.of(memory).shape)
                tensor.written()

    def _room(self, tensor: Tensor, name: str) -> Array:
        if tensor.initialized:
            return tensor.memory(newest=False)
        variable = self.exchange.compute.global_block().var(name)
        assert variable.dtype is not None
        return tensor.allocate(tuple(variable.shape or (1,)), to_numpy(variable.dtype))

    def _fetched(self, name: str, fetches: Fetches) -> Any:
        value = self._memory(name).copy()
        each = as_fetched(value) if fetches.as_numpy else as_tensor(name, value)
        return each if fetches.merged else [each] * self._places

    # -- tables ---------------------------------------------------------------------------------

    def _with_rows(self, feed: Any) -> Any:
        """Return the feed with the rows that the ids in it name."""
        program = self.inner.program
        if program.readers:
            within = current_config().step_deadline_s
            steps = batches_for(program, feed, self._places, 1, within)
            if steps:
                batches = [{**(feed or {}), **batch} for batch in steps[0]]
                feed = batches[0] if self._places == 1 else batches
        if isinstance(feed, (list, tuple)):
            return [self._with_rows_of(each) for each in feed]
        return self._with_rows_of(feed or {})

    def _with_rows_of(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(feed, Mapping):
            raise InvalidType(f"feed must be a dict of arrays by variable name, got {feed!r}.")
        full = dict(feed)
        for lookup in self.exchange.lookups:
            ids = full[lookup.ids] if lookup.ids in full else self._ids(lookup.ids, feed)
            rows = self.session.lookup(self.exchange, lookup, np.asarray(ids))
            full[lookup.out] = rows
            if isinstance(ids, Tensor) and ids.lod():
                full[lookup.out] = as_tensor(lookup.out, rows, tuple(map(tuple, ids.lod())))
        return full

    def _ids(self, name: str, feed: Mapping[str, Any]) -> Tensor:
        """Return ids that the program computes from what is fed: the ops that make them run twice."""
        if name not in self._ids_runs:
            place = CPUPlace()
            self._ids_runs[name] = LocalRun(
                self.exchange.compute,
                [place],
                self.scope,
                gang=LocalGang(place),
                plain=True,
            )
        alone = Fetches((name,), as_numpy=False, updates=(name,))
        ids: Tensor = self._ids_runs[name].run(feed, alone)[0]
        return ids


def _absence(table: str, endpoints: Sequence[str]) -> str:
    return (
        f"a trainer has no value of {table!r}, a table that the parameter servers {', '.join(endpoints)} hold. "
        f"Run the program that transpile has rewritten, or a clone of it, whose lookups ask them. Save it by "
        f"fluid.io.save_inference_model or save_persistables, which receive the table, and one that was cloned "
        f"before by fleet.save_inference_model."
    )


def _joined(name: str, parts: Sequence[Any], as_numpy: bool) -> Any:
    """Return the places' values of a fetch behind each other, sequences after sequences."""
    if len(parts) == 1:
        return parts[0]
    lods = [tuple(map(tuple, part.lod())) for part in parts if isinstance(part, Tensor)]
    return Joined(name, [np.asarray(part) for part in parts], lods).merged(as_numpy)


def _described(facts: Mapping[str, Any]) -> str:
    staleness = {number: trainer["staleness"] for number, trainer in facts["trainers"].items()}
    stale = ", ".join(
        f"trainer {number}: {steps['mean']:.2f} on average, {steps['max']} at most"
        for number, steps in staleness.items()
    )
    return (
        f"parameter server {facts['endpoint']} ({facts['mode']}): {facts['steps']} steps applied; steps of "
        f"others between what a trainer computed on and its gradients: {stale}"
    )
