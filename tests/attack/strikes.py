"""How a replica is killed: at a moment, at a point inside it, or when the driver passes a point."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import ray

from rowlock.cluster.channel.connection import ReplicaConnection
from rowlock.cluster.gang import RayDelivery
from rowlock.cluster.ray.actor_pool import ActorPool
from tests.contract.strikes import Scene, hook_actors, hook_messages

from . import inside

PARTS = ("waiting", "replace", "describe", "connect")
RECOVERY = (
    "inventory",
    "roll_forward",
    "regroup",
    "names",
    "read",
    "write",
    "resume",
    "load",
    "step",
)
AT_DRIVER = [
    f"{when} {kind}" for kind in RECOVERY for when in ("before", "sent", "heard", "answered")
]
AT_DRIVER += [f"{when} {what}" for when in ("before", "sent") for what in PARTS]
IN_REPLICA = [f"{when} {kind}" for kind in RECOVERY for when in ("takes", "did")]
IN_STEP = ["takes step", "did step"]
IN_STEP += [
    f"{when} {call}"
    for call in ("all_reduce", "hand_over", "prepare", "commit", "_answer")
    for when in ("before", "after")
]
NEWCOMER = -1  # the rank that was lost last: whoever has come in for it

# Points of a step, and the most seconds behind one. GPUs that vote by themselves have kernels for it.
AMID = (
    ("takes step", 2e-3),
    ("after hand_over", 3e-4),
    ("after prepare", 3e-4),
    ("after commit", 2e-4),
)
AMID_ON_GPUS = (
    *AMID,
    *(
        (f"{when} {kernel}", 3e-4)
        for kernel in ("offer_step", "decide_step")
        for when in ("before", "after")
    ),
)


@dataclass(frozen=True)
class Strike:
    """One kill. ``point`` "": ``after`` seconds from the step's begin, by the driver's clock.

    ``inside``: the point is the replica's, and the kill comes ``after`` it, by the kernel's timer. ``skip``:
    how often it is passed before. ``then``: another kill in the same step, mostly of the recovery.
    """

    victim: int
    point: str = ""
    inside: bool = False
    after: float = 0.0
    skip: int = 0
    then: Strike | None = None

    def __str__(self) -> str:
        who = "the newcomer" if self.victim == NEWCOMER else f"replica {self.victim}"
        where = (
            f"{'its ' if self.inside else 'the driver: '}{self.point!r}" if self.point else "begin"
        )
        text = f"{who}, {self.after * 1e3:.2f} ms after {where}" + f" (+{self.skip})" * bool(
            self.skip
        )
        return text + (f", then {self.then}" if self.then else "")


class Points(Scene):
    """Calls what waits for a named point of the driver when the driver passes it, once."""

    def __init__(self) -> None:
        super().__init__([])
        self.waiting: dict[str, Callable[[], None]] = {}
        self._kind = ""

    def at(self, point: str, late: bool) -> None:
        """Pass a point: before the driver's part in something, or after."""
        self._kind = point
        self.reach(f"{'sent' if late else 'before'} {point}")

    def reach(self, point: str) -> None:
        """Strike if something waits for this point."""
        call = self.waiting.pop(point, None)
        if call is not None:
            call()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Pass points in the driver, and have actors pass theirs, until the block ends."""
        finish, pull = RayDelivery.finish, ReplicaConnection.pull

        def finished(delivery: Any, number: int) -> dict[int, Any]:
            answers = finish(delivery, number)
            self.reach(f"answered {self._kind}")
            return answers

        def pulled(line: ReplicaConnection, take: Callable[[Any], None]) -> None:
            def taken(frame: Any) -> None:
                self.reach(f"heard {self._kind}")
                take(frame)

            pull(line, taken)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ActorPool, "describe", installing(ActorPool.describe))
            patch.setattr(RayDelivery, "finish", finished)
            patch.setattr(ReplicaConnection, "pull", pulled)
            hook_messages(patch, self)
            hook_actors(patch, self)
            yield


def installing(describe: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``describe`` that also puts the named points into the actors."""

    def body(pool: ActorPool, members: Mapping[int, Any]) -> None:
        describe(pool, members)
        calls = [m.actor.__ray_call__.remote(inside.install) for m in members.values()]
        with contextlib.suppress(ray.exceptions.RayActorError):
            # it was killed meanwhile: found elsewhere
            ray.get(calls)

    return body


class Striker:
    """Carries strikes out on one gang after another."""

    def __init__(self, points: Points) -> None:
        self.points = points
        self._last = 0
        self._killer: threading.Thread | None = None

    def strike(self, gang: Any, strike: Strike) -> None:
        """See to it that a replica is killed when the strike says so; returns before that."""
        if strike.then is not None and strike.then.inside:
            self.strike(gang, strike.then)
        if strike.inside:
            member = gang.delivery._members[min(strike.victim, gang.size - 1)]
            arm = member.actor.__ray_call__.remote(
                inside.arm, strike.point, strike.skip, strike.after
            )
            with contextlib.suppress(ray.exceptions.RayActorError):  # it is just behind an answer
                ray.get(arm)
        elif strike.point:
            self.points.waiting[strike.point] = lambda: self._kill(gang, strike)
        else:
            self._killer = threading.Thread(target=self._later, args=(gang, strike))
            self._killer.start()

    def wait(self) -> None:
        """Wait for a kill that comes so long after the step began."""
        if self._killer is not None:
            self._killer.join()

    def settle(self, gang: Any) -> int:
        """Give up what waits for a point that was not reached; return how many did."""
        missed = len(self.points.waiting)
        self.points.waiting.clear()
        calls = [m.actor.__ray_call__.remote(inside.disarm) for m in gang.delivery._members]
        ray.wait(calls, num_returns=len(calls), timeout=60.0)
        return missed

    def _later(self, gang: Any, strike: Strike) -> None:
        time.sleep(strike.after)
        self._kill(gang, strike)

    def _kill(self, gang: Any, strike: Strike) -> None:
        rank = self._last if strike.victim == NEWCOMER else strike.victim
        member = gang.delivery._members[min(rank, gang.size - 1)]
        if strike.victim == NEWCOMER:
            member = self.points.fresh.get(self._last, member)
        else:
            self._last = strike.victim
        if strike.then is not None and not strike.then.inside:
            self.strike(gang, strike.then)
        with contextlib.suppress(ProcessLookupError, KeyError):
            os.kill(member.where["pid"], signal.SIGKILL)


def named(draw: random.Random, places: int) -> list[Strike]:
    """Return a strike at every named point of a step, and at every one of recovery."""
    strikes = [Strike(draw.randrange(places), point, inside=True) for point in IN_STEP]
    for point, within in [(p, False) for p in AT_DRIVER] + [(p, True) for p in IN_REPLICA]:
        first = draw.randrange(places)
        others = [rank for rank in range(places) if rank != first]
        other = draw.choice(others if within else [NEWCOMER, *others])
        then = Strike(other, point, inside=within)
        strikes.append(Strike(first, "before step", then=then))
    return strikes


def at_random(draw: random.Random, places: int, amid: Sequence[tuple[str, float]] = AMID) -> Strike:
    """Return a strike at a random moment of a step: behind its begin, or one of its points."""
    victim = draw.randrange(places)
    if draw.random() < 0.4:
        return Strike(victim, after=draw.random() * 4e-3)
    point, longest = draw.choice(amid)
    after = 1e-6 + draw.random() * longest
    return Strike(victim, point, inside=True, after=after, skip=draw.randrange(2))
