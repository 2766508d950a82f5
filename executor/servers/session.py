"""A trainer's side of its servers: it joins them, pushes, waits and pulls, step by step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...graph.transpiler.exchange import (
    Exchange,
    Piece,
    Received,
    Saved,
    Sent,
    TableLookup,
)
from ...graph.transpiler.sparse_sends import ROWS
from ...strategies.current import current_config
from ...strategies.errors import EnforceNotMet, InvalidState, InvalidValue
from ...strategies.log import log
from ..gang.launchers import launcher_of
from ..rpc import messages as rpc
from ..rpc.answers import expected

if TYPE_CHECKING:
    from ...strategies.cluster import ClusterConfig

Array = np.ndarray[Any, Any]
Values = Mapping[str, Array]


class Session:
    """One trainer and its servers, for all programs of this process that name them.

    ``number``: steps that it has pushed. ``turn``: the lock for talking to the servers, and for reading what
    they answered. The first server in order decides when steps may begin.
    """

    def __init__(self, trainer: int, endpoints: Sequence[str], config: ClusterConfig) -> None:
        self.trainer, self.endpoints, self.config = trainer, tuple(endpoints), config
        self.number = 0
        self._wire: rpc.Wire = launcher_of(config).wire(config)
        self._joined: dict[str, str] = {}
        self._pool = ThreadPoolExecutor(max(len(endpoints), 1), f"rowlock-trainer-{trainer}")
        self._calls: Sequence[Future[Any]] = ()
        self.turn = threading.RLock()
        self.open = True

    # -- steps ----------------------------------------------------------------------------------

    def drain(self) -> None:
        """Wait for calls that went on when another failed: they may still read the last step's results."""
        wait(self._calls)

    def exchange(self, exchange: Exchange, values: Values) -> Values:
        """Push a step's results and pull the next step's parameters, by the names servers have for them."""
        number = self.number + 1
        outgoing = {e: _pushes(exchange, e, values, self.trainer, number) for e in self.endpoints}
        names = {e: _names(exchange.received, e) for e in self.endpoints}
        pushes = bool(exchange.sent or exchange.sync)
        return self.step(exchange, outgoing if pushes else None, names)

    def step(
        self,
        exchange: Exchange,
        outgoing: Mapping[str, Sequence[rpc.Push]] | None,
        names: Mapping[str, tuple[str, ...]],
    ) -> Values:
        """Push to servers, end the step and pull; without ``outgoing`` there is no step to end."""
        with self.turn:
            self._check_open()
            self._join(exchange)
            number = self.number + (outgoing is not None)
            first: dict[str, list[rpc.Single]] = {e: [] for e in self.endpoints}
            for endpoint in self.endpoints if outgoing is not None else ():
                pushes = (outgoing or {}).get(endpoint, ())
                first[endpoint] += [
                    push if push.number == number else replace(push, number=number)
                    for push in pushes
                ]
                first[endpoint].append(rpc.Barrier(self.trainer, number, "send"))
            last: dict[str, list[rpc.Single]] = {
                e: [rpc.Pull(self.trainer, number, names[e])] if names.get(e) else []
                for e in self.endpoints
            }
            pulled = self._phases(first, self._waits(exchange, number), last)
            self.number = number
            return pulled

    def _waits(self, exchange: Exchange, number: int) -> list[rpc.Single]:
        """Return the barriers that the first server gets between the pushes and the pulls."""
        if self.config.staleness_bound is None or exchange.sync:
            return []
        return [rpc.Barrier(self.trainer, number + 1, "begin")]

    def _phases(
        self,
        first: Mapping[str, Sequence[rpc.Single]],
        waits: Sequence[rpc.Single],
        last: Mapping[str, Sequence[rpc.Single]],
    ) -> Values:
        """Send all at once, unless there is something to wait for: then the first server hears the end last."""
        if not waits:
            return _pulled(self._all({e: [*first.get(e, ()), *last[e]] for e in self.endpoints}))
        arbiter, *others = self.endpoints
        self._all({e: first.get(e, ()) for e in others})
        self._all({arbiter: [*first.get(arbiter, ()), *waits]})
        return _pulled(self._all(last))

    def lookup(self, exchange: Exchange, lookup: TableLookup, ids: Array) -> Array:
        """Return rows of a table, or of state, for ids of any shape; rows of ``padding_idx`` are zeros."""
        with self.turn:
            self._check_open()
            self._join(exchange)
            shape = ids.shape[:-1] if lookup.drops_last else ids.shape
            flat = ids.reshape(-1).astype(np.int64)
            unique, places = np.unique(flat, return_inverse=True)
            _check_ids(lookup, unique)
            requests: dict[str, list[rpc.Lookup]] = {}
            masks: dict[tuple[str, str], Array] = {}
            for piece in lookup.pieces:
                inside = piece.holds(unique)
                if inside.any():
                    masks[piece.endpoint, piece.name] = inside
                    own = piece.own(unique[inside])
                    message = rpc.Lookup(self.trainer, self.number + 1, piece.name, own)
                    requests.setdefault(piece.endpoint, []).append(message)
            rows: Array | None = None
            for endpoint, message, answer in self._each(requests):
                there = expected(answer, rpc.Arrays, endpoint).by_name[message.table]
                if rows is None:
                    rows = np.zeros((len(unique), *there.shape[1:]), there.dtype)
                rows[masks[endpoint, message.table]] = there
            assert rows is not None, "there are ids, each in a part of the table"
            if lookup.padding_idx != -1:
                rows[unique == lookup.padding_idx] = 0
            result: Array = rows[places.reshape(-1)].reshape(*shape, *rows.shape[1:])
            return result

    # -- messages -------------------------------------------------------------------------------

    def _join(self, exchange: Exchange) -> None:
        digests = exchange.digests
        new = {
            e: d
            for e, d in digests.items()
            if (d and self._joined.get(e) != d) or e not in self._joined
        }
        hellos: dict[str, list[rpc.Single]] = {
            e: [rpc.Hello(self.trainer, exchange.trainers, digest)] for e, digest in new.items()
        }
        answers = self._all(hellos, self.config.start_deadline_s)
        applied = {e: expected(answer, rpc.Welcome, e).number for e, answer in answers.items()}
        self._joined |= {endpoint: digests[endpoint] for endpoint in answers}
        if not applied or min(applied.values()) < self.number:
            return  # a server was restored, and hears again what it forgot
        self.number, most = min(applied.values()), max(applied.values())
        if self.number < most:  # others wait for the rest, and who has these steps leaves them out
            log.warning(
                "trainer %d goes on behind step %d: it was stopped before its gradients up to step %d came to "
                "%s. They are computed again, from what the servers hold now",
                self.trainer,
                self.number,
                most,
                ", ".join(e for e, number in applied.items() if number < most),
            )

    def _all(
        self, messages: Mapping[str, Sequence[rpc.Single]], within: float | None = None
    ) -> dict[str, rpc.Answer]:
        """Send to all servers at once; return their answers."""
        journeys: dict[str, rpc.Message] = {
            e: each[0] if len(each) == 1 else rpc.Together(tuple(each))
            for e, each in messages.items()
            if each
        }
        return self._at_once({e: partial(self._call, e, m, within) for e, m in journeys.items()})

    def _each(
        self, messages: Mapping[str, Sequence[rpc.Lookup]]
    ) -> list[tuple[str, rpc.Lookup, rpc.Answer]]:
        """Send messages to all servers at once, one after another to each; return all answers."""

        def ask(endpoint: str) -> list[tuple[str, rpc.Lookup, rpc.Answer]]:
            return [(endpoint, m, self._call(endpoint, m, None)) for m in messages[endpoint]]

        answers = self._at_once({e: partial(ask, e) for e in messages})
        return [answer for each in answers.values() for answer in each]

    def _at_once(self, calls: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
        if len(calls) < 2:
            return {endpoint: call() for endpoint, call in calls.items()}
        futures = {endpoint: self._pool.submit(call) for endpoint, call in calls.items()}
        self._calls = list(futures.values())
        try:
            return {endpoint: future.result() for endpoint, future in futures.items()}
        except KeyboardInterrupt:  # or the process would wait for the others before it ends
            self._hang_up()
            raise

    def _call(self, endpoint: str, message: rpc.Message, within: float | None) -> rpc.Answer:
        config = self.config  # a server waits so long itself, and then names the trainer
        longest = config.step_deadline_s + config.start_deadline_s
        return self._wire.call(endpoint, message, within if within is not None else longest)

    # -- else -----------------------------------------------------------------------------------

    def save(self, tables: Sequence[Saved]) -> None:
        """Have servers write tables."""
        with self.turn:
            self._check_open()
            for table in tables:
                self._call(table.endpoint, rpc.Save(table.folder, (table.table,)), None)

    def reports(self) -> list[rpc.Report]:
        """Return the reports of all servers that were joined."""
        with self.turn:
            self._check_open()
            requests: dict[str, list[rpc.Single]] = {
                e: [rpc.Ask()] for e in self.endpoints if e in self._joined
            }
            return [expected(a, rpc.Report, e) for e, a in self._all(requests).items()]

    def close(self) -> None:
        """Say goodbye to all servers that still answer."""
        with self.turn:
            if not self.open:
                return
            self.open = False
            for endpoint in self._joined:
                try:
                    self._call(endpoint, rpc.Goodbye(self.trainer), 1.0)
                except EnforceNotMet:  # it ended before
                    continue
            self._wire.close()
            self._pool.shutdown()

    def _hang_up(self) -> None:
        """End the calls that are under way; servers have to be joined again."""
        self._wire.close()
        self._wire = launcher_of(self.config).wire(self.config)
        self._joined = dict.fromkeys(self._joined, "")

    def _check_open(self) -> None:
        if not self.open:
            raise InvalidState(f"trainer {self.trainer} has said goodbye to its servers.")


def _pulled(answers: Mapping[str, rpc.Answer]) -> Values:
    return {
        name: array
        for answer in answers.values()
        if isinstance(answer, rpc.Arrays)
        for name, array in answer.by_name.items()
    }


def _pushes(
    exchange: Exchange, endpoint: str, values: Values, trainer: int, number: int
) -> list[rpc.Push]:
    return [
        push
        for sent in exchange.sent
        for piece in sent.pieces
        if piece.endpoint == endpoint
        for push in [_push(sent, piece, values, trainer, number)]
    ]


def _push(sent: Sent, piece: Piece, values: Values, trainer: int, number: int) -> rpc.Push:
    array = values[sent.variable]
    if not sent.height:
        return rpc.Push(trainer, number, piece.name, piece.of(array))
    rows = values[sent.variable + ROWS]
    inside = piece.holds(rows) & (rows < sent.height)
    own = piece.own(rows[inside])
    return rpc.Push(trainer, number, piece.name, array[inside], own, piece.height(sent.height))


def _names(received: Sequence[Received], endpoint: str) -> tuple[str, ...]:
    return tuple(p.name for r in received for p in r.pieces if p.endpoint == endpoint)


def _check_ids(lookup: TableLookup, ids: Array) -> None:
    height = lookup.height
    if ids.size and (ids[0] < 0 or ids[-1] >= height):
        wrong = ids[0] if ids[0] < 0 else ids[-1]
        raise InvalidValue(
            f"variable {lookup.ids!r} has id {wrong}, and the table has {height} rows (0 to {height - 1})."
        )


_sessions: dict[tuple[str, int, tuple[str, ...]], Session] = {}
_lock = threading.Lock()


def open_session(exchange: Exchange) -> Session:
    """Return the session that a trainer has with its servers.

    Raises:
        InvalidState: there is none: the trainer has not begun, or has said goodbye.
    """
    with _lock:
        session = _sessions.get(_key(exchange))
    if session is None or not session.open:
        raise InvalidState(
            f"trainer {exchange.trainer} is not connected to the parameter servers "
            f"{', '.join(exchange.endpoints)}, which have what is to be saved. Save behind the startup "
            f"program, and before exe.close() or fleet.stop_worker()."
        )
    return session


def _key(exchange: Exchange) -> tuple[str, int, tuple[str, ...]]:
    return current_config().model_dump_json(), exchange.trainer, exchange.endpoints


def session_for(exchange: Exchange) -> Session:
    """Return the session of a trainer with its servers, begun if there is none."""
    config, key = current_config(), _key(exchange)
    with _lock:
        for closed in [other for other, session in _sessions.items() if not session.open]:
            del _sessions[closed]
        if key not in _sessions:
            _sessions[key] = Session(exchange.trainer, exchange.endpoints, config)
        return _sessions[key]
