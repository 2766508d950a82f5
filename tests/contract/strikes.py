"""Kills at named points of a recovery: a replica ends just before, or while, the driver does its part there."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import ray

from rowlock.cluster.gang import RayDelivery
from rowlock.cluster.ray.actor_pool import ActorPool
from rowlock.executor.gang.delivery import Ledger
from rowlock.executor.gang.recovery import Recovery
from rowlock.executor.replica import orders

Victim = Callable[["Scene"], int]
"""Returns the rank that is to die; of a new one that is on its way, ``~rank``."""

POINTS = (
    *("waiting", "inventory", "roll_forward", "replace", "describe", "connect", "regroup"),
    *("names", "read", "write", "resume", "load", "step"),
)
"""What the driver does in a recovery, in this order. "waiting": for the living to answer what they were asked;
"describe" and "connect": new actors; "step": what has not happened is sent again; the others are messages."""


@dataclass(frozen=True)
class Strike:
    """A kill at a point of a recovery: before the driver's part in it, or after (``late``): when the actors are
    described and connected, and when a message was sent, so that replicas are busy with it.
    """

    point: str
    victim: Victim
    late: bool = False


@dataclass
class Scene:
    """Where strikes happen: a gang that is being mended, and what became of the strikes."""

    strikes: list[Strike]
    landed: list[Strike] = field(default_factory=list)
    delivery: RayDelivery | None = None
    ledger: Ledger | None = None
    fresh: dict[int, Any] = field(default_factory=dict)
    inside: bool = False

    def at(self, point: str, late: bool) -> None:
        """Make the next strike if this is its point."""
        if not self.inside or not self.strikes:
            return
        strike = self.strikes[0]
        if strike.point != point or strike.late != late:
            return
        self.strikes.pop(0)
        self.landed.append(strike)
        self._kill(strike.victim(self))

    def _kill(self, rank: int) -> None:
        assert self.delivery is not None
        member = self.fresh[~rank] if rank < 0 else self.delivery._members[rank]
        if member.where:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member.where["pid"], signal.SIGKILL)
        else:
            ray.kill(member.actor)


def living(scene: Scene) -> list[int]:
    """Return the ranks that have the values."""
    assert scene.delivery is not None and scene.ledger is not None
    return [rank for rank in scene.delivery.alive if rank not in scene.ledger.stale]


def first(scene: Scene) -> int:
    """Have the first of those die that have the values: the one that others would get them from."""
    return living(scene)[0]


def last(scene: Scene) -> int:
    """Have the last of those die that have the values."""
    return living(scene)[-1]


def newcomer(scene: Scene) -> int:
    """Have one die that is to come in."""
    assert scene.delivery is not None and scene.ledger is not None
    if scene.fresh:
        return ~max(scene.fresh)
    there = [rank for rank in scene.delivery.alive if rank in scene.ledger.stale]
    return there[0] if there else scene.delivery.alive[-1]


@contextlib.contextmanager
def striking(strikes: Sequence[Strike]) -> Iterator[Scene]:
    """Make these strikes, one after the other, in whatever recoveries there are inside the block."""
    scene = Scene(list(strikes))
    with pytest.MonkeyPatch.context() as patch:
        _hook_recovery(patch, scene)
        hook_messages(patch, scene)
        hook_actors(patch, scene)
        yield scene


def _hook_recovery(patch: pytest.MonkeyPatch, scene: Scene) -> None:
    def inside(name: str) -> None:
        before = getattr(Recovery, name)

        def call(self: Recovery, *args: Any) -> Any:
            outer, scene.inside = scene.inside, True
            scene.delivery, scene.ledger = self.delivery, self.ledger  # type: ignore[assignment]
            try:
                return before(self, *args)
            finally:
                scene.inside = outer

        patch.setattr(Recovery, name, call)

    inside("after")
    inside("resume")
    steps_done = Recovery._steps_done

    def behind(self: Recovery, ranks: Sequence[int], order: orders.Order) -> dict[int, int]:
        """Have one replica seem to be a step behind, if a strike waits for the message that tells it so."""
        stands = steps_done(self, ranks, order)
        awaited = bool(scene.strikes) and scene.strikes[0].point == "roll_forward"
        if awaited and isinstance(order, orders.Inventory):
            stands[max(stands)] -= len(stands) > 1
        return stands

    patch.setattr(Recovery, "_steps_done", behind)


def hook_messages(patch: pytest.MonkeyPatch, scene: Scene) -> None:
    """Tell the scene of every message that is sent, and of the wait for the living."""
    start, drain = RayDelivery.start, RayDelivery.drain

    def started(self: RayDelivery, messages: Any, *args: Any, **how: Any) -> int:
        kind = next(iter(messages.values())).kind
        scene.at(kind, late=False)
        number = start(self, messages, *args, **how)
        scene.at(kind, late=True)
        return number

    def drained(self: RayDelivery) -> None:
        scene.at("waiting", late=False)
        drain(self)
        scene.at("waiting", late=True)

    patch.setattr(RayDelivery, "start", started)
    patch.setattr(RayDelivery, "drain", drained)


def hook_actors(patch: pytest.MonkeyPatch, scene: Scene) -> None:
    """Tell the scene of every actor that comes in."""
    replace, describe, connect = (
        RayDelivery.replace,
        ActorPool.describe,
        RayDelivery._connect,
    )

    def replaced(self: RayDelivery) -> list[int]:
        scene.at("replace", late=False)
        try:
            return replace(self)
        finally:
            scene.fresh = {}
            scene.at("replace", late=True)

    def described(self: ActorPool, members: Any) -> None:
        if min(members, default=0) >= 0:  # no spare that stands by
            scene.fresh = dict(members)
        scene.at("describe", late=False)
        describe(self, members)
        scene.at("describe", late=True)

    def connected(self: RayDelivery, members: Any) -> None:
        scene.at("connect", late=False)
        connect(self, members)
        scene.at("connect", late=True)

    patch.setattr(RayDelivery, "replace", replaced)
    patch.setattr(ActorPool, "describe", described)
    patch.setattr(RayDelivery, "_connect", connected)
