"""Geo-SGD at a trainer: it updates its own parameters, and shares what changed every few steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...graph.transpiler.exchange import Changes, Exchange, Received
from ...graph.transpiler.sparse_sends import ROWS
from ..device.tensor import Tensor
from ..feed.scope import Scope
from ..rpc.messages import Push
from .session import Session

Array = np.ndarray[Any, Any]
_CHANGE = ".delta"


class SharedChanges:
    """Parameters as the servers had them when they were pulled last, and what was changed since.

    Every trainer pushes its change divided by the number of trainers, so servers add up to their mean; what the
    others changed is added to the trainer's own values.
    """

    def __init__(
        self, exchange: Exchange, changes: Changes, session: Session, scope: Scope
    ) -> None:
        self._exchange, self._changes = exchange, changes
        self._session, self._scope = session, scope
        self._steps = 0
        self._base = {p.variable: self._tensor(p.variable).numpy() for p in changes.parameters}

    def _tensor(self, name: str) -> Tensor:
        return self._scope.home(name).get_tensor()

    def stepped(self) -> None:
        """Note a step; push and pull if it is time."""
        self._steps += 1
        if self._steps % self._changes.every == 0:
            self.share()

    def share(self) -> None:
        """Push what changed, and take in what others changed."""
        session, trainers = self._session, max(self._exchange.trainers, 1)
        outgoing: dict[str, list[Push]] = {endpoint: [] for endpoint in session.endpoints}
        names: dict[str, tuple[str, ...]] = {}
        row_numbers: dict[str, Array] = {}
        own = {p.variable: self._tensor(p.variable).numpy() for p in self._changes.parameters}
        for parameter in self._changes.parameters:
            name = parameter.variable
            change = ((own[name] - self._base[name]) / trainers).astype(own[name].dtype)
            if name in self._changes.rows:
                row_numbers[name] = np.flatnonzero(change.any(axis=tuple(range(1, change.ndim))))
            for piece in parameter.pieces:
                push = Push(session.trainer, 0, piece.name + _CHANGE, piece.of(change))
                asked = piece.name
                if name in self._changes.rows:
                    push, asked = _rows_of(push, row_numbers[name] - piece.first), push.name
                names[piece.endpoint] = (*names.get(piece.endpoint, ()), asked)
                outgoing[piece.endpoint].append(push)
            self._base[name] += change
        pulled = session.step(self._exchange, outgoing, names)
        for parameter in self._changes.parameters:
            self._take(parameter, own[parameter.variable], pulled)

    def _take(self, parameter: Received, own: Array, pulled: Mapping[str, Array]) -> None:
        """Add what others changed; of a table, the rows that they did."""
        base = self._base[parameter.variable]
        for piece in parameter.pieces:
            rows: Any = ...
            there = pulled.get(piece.name)
            if there is None:
                there, rows = pulled[piece.name + _CHANGE], pulled[piece.name + _CHANGE + ROWS]
            mine, known = piece.of(own), piece.of(base)
            there = there.reshape(known[rows].shape)
            mine[rows] += there - known[rows]
            known[rows] = there
        self._tensor(parameter.variable).set(own)


def _rows_of(push: Push, rows: Array) -> Push:
    height = len(push.values)
    own = rows[(rows >= 0) & (rows < height)]
    return Push(push.trainer, push.number, push.name, push.values[own], own, height)
