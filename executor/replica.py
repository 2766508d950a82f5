"""Replica: one copy of the training program, wherever it runs. It answers messages; gangs deliver them."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..graph.ops.registry import Spec
from ..graph.replica_program import ReplicaProgram
from ..strategies.errors import CollectiveAborted, NotInitialized
from ..strategies.types import to_numpy
from .bind import Binder, Buckets, Collectives, infer_specs, spec_of
from .device import Device
from .plan import Plan
from .run import MEASURED_STEPS, Lanes, deal, worth_dealing

PLANS_KEPT = 16  # per program: one for each combination of feed shapes met lately


class Message(NamedTuple):
    """What travels between driver and replica: a kind, a head of plain data, and arrays."""

    kind: str
    head: Mapping[str, Any]
    arrays: Sequence[np.ndarray] = ()


class Group(Collectives, Protocol):
    """A collective group as a replica uses it."""

    rank: int
    size: int
    local_size: int  # ranks on this host

    def abort(self, reason: str) -> None:
        """Release every rank that waits; they raise CollectiveAborted."""
        ...

    def reset(self, epoch: int) -> None:
        """Make the group usable again; every rank calls it with the same number."""
        ...

    def close(self) -> None:
        """Let go of memory and peers."""
        ...


class _Bound:
    """A plan, and what it takes to bind it again for several threads once its instructions were timed."""

    def __init__(self, binder: Binder) -> None:
        self.binder = binder
        self.plan = binder.plan()
        self.timed_steps = 0


class _Loaded:
    """A program on this replica: its gradient buckets and the plans bound so far.

    ``threads`` instructions may run at once; ``every_lock`` as the build strategy says.
    """

    def __init__(self, head: Mapping[str, Any], group: Group | None, cores: int) -> None:
        self.program = ReplicaProgram.from_json(head["program"])
        self.scope: int = head["scope"]
        self.threads: int = min(head["threads"], cores) if head["capped"] else head["threads"]
        self.every_lock: bool = head["every_lock"]
        self.buckets = Buckets(self.program, group if self.program.buckets else None)
        self.plans: OrderedDict[tuple[Any, ...], _Bound] = OrderedDict()
        self.alive: Plan | None = None
        self.last: Plan | None = None
        self.tracing = False

    def forget_plans(self) -> None:
        """Let go of every plan and its memory."""
        self.alive = self.last = None
        for bound in self.plans.values():
            bound.plan.close()
        self.plans.clear()


class Replica:
    """Keeps device scopes and loaded programs, and runs steps.

    ``group`` joins it to its peers (None: alone). Each kind of message is a method named ``on_<kind>``.
    """

    def __init__(self, rank: int, group: Group | None, within: float = 60.0) -> None:
        self.rank = rank
        self.group = group
        self.within = within
        self.scopes: dict[int, dict[str, np.ndarray]] = {}
        self.programs: dict[int, _Loaded] = {}
        self.epoch = 0

    def handle(self, message: Message) -> Message:
        """Answer a message; what goes wrong becomes an ``error`` message, never an exception."""
        try:
            answer: Callable[[Mapping[str, Any], Sequence[np.ndarray]], Message]
            answer = getattr(self, f"on_{message.kind}")
            return answer(message.head, message.arrays)
        except Exception as error:
            collateral = isinstance(error, CollectiveAborted)
            if self.group is not None and not collateral:
                self.group.abort(f"{type(error).__name__}: {error}")
            head = {
                "rank": self.rank,
                "type": type(error).__name__,
                "text": str(error),
                "collateral": collateral,
            }
            return Message("error", head)

    def on_load(self, head: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> Message:
        """Take in a program (JSON) under an id, to run on the device scope ``scope``."""
        self._meet(head)
        cores = max((os.cpu_count() or 1) // (self.group.local_size if self.group else 1), 1)
        self.programs[head["id"]] = _Loaded(head, self.group, cores)
        return Message("ok", {})

    def on_unload(self, head: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> Message:
        """Forget programs and device scopes."""
        for program in head["programs"]:
            loaded = self.programs.pop(program, None)
            if loaded is not None:
                loaded.forget_plans()
                loaded.buckets.release()
        for scope in head["scopes"]:
            self.scopes.pop(scope, None)
        return Message("ok", {})

    def on_inventory(self, head: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> Message:
        """Tell how many programs and device scopes are held."""
        return Message("inventory", {"programs": len(self.programs), "scopes": len(self.scopes)})

    def on_write(self, head: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> Message:
        """Write persistables of a device scope."""
        scope = self.scopes.setdefault(head["scope"], {})
        for name, value in zip(head["names"], arrays, strict=True):
            held = scope.get(name)
            if held is not None and held.shape == value.shape and held.dtype == value.dtype:
                held[...] = value
            else:
                scope[name] = np.array(value)
                self._forget_plans(head["scope"])
        return Message("ok", {})

    def on_read(self, head: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> Message:
        """Return copies of persistables of a device scope."""
        scope = self.scopes.get(head["scope"], {})
        missing = [name for name in head["names"] if name not in scope]
        if missing:
            raise NotInitialized(f"replica {self.rank} holds no value for {', '.join(missing)}.")
        return Message("values", {}, [scope[name].copy() for name in head["names"]])

    def on_step(self, head: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> Message:
        """Run steps of a loaded program on what was fed; return what the last one fetches.

        ``iterations`` steps run on the same arrays, or on as many sets of arrays if so many came. ``idle``:
        this place has no rows in this step.
        """
        self._meet(head)
        loaded = self.programs[head["id"]]
        width, sets = len(loaded.program.feeds), len(head["rows"])
        for k in range(head["iterations"]):
            s = k % sets
            feeds = arrays[s * width : (s + 1) * width]
            bound = self._bound(loaded, feeds, head["idle"][s])
            clock = bound.plan.device.clock
            clock.step, clock.row, clock.share = head["step"] + k, head["rows"][s], head["parts"][s]
            loaded.alive = loaded.last = bound.plan
            fetched = self._run(loaded, bound, feeds)
        for number in head["drop"]:
            self.programs[number].alive = None
        return Message("fetched", {}, fetched)

    def on_drop(self, head: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> Message:
        """End the life of a program's temporaries and give their memory back."""
        loaded = self.programs.get(head["id"])
        if loaded is not None:
            loaded.forget_plans()
        return Message("ok", {})

    def on_temporaries(self, head: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> Message:
        """Tell how many temporaries of a program are alive, and their bytes."""
        plan = self.programs[head["id"]].alive
        count, nbytes = plan.temporaries if plan is not None else (0, 0)
        return Message("temporaries", {"count": count, "bytes": nbytes})

    def on_trace(self, head: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> Message:
        """Keep times of a program's steps from now on (``on``), and return those of the last step."""
        loaded = self.programs[head["id"]]
        loaded.tracing = head["on"]
        trace = loaded.last.trace if loaded.last is not None else None
        lanes = loaded.last.lanes if loaded.last is not None else None
        events = [[e.op, e.writes, e.lane, e.began, e.ended] for e in trace or () if e is not None]
        return Message("trace", {"events": events, "signals": lanes.signals if lanes else 0})

    def close(self) -> None:
        """Let go of everything."""
        for loaded in self.programs.values():
            loaded.forget_plans()
        self.programs.clear()
        self.scopes.clear()
        if self.group is not None:
            self.group.close()

    def _meet(self, head: Mapping[str, Any]) -> None:
        """After a failure the driver counts the epoch up, and all ranks begin their collectives afresh."""
        if head["epoch"] != self.epoch:
            self.epoch = head["epoch"]
            if self.group is not None:
                self.group.reset(self.epoch)

    def _run(self, loaded: _Loaded, bound: _Bound, feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run one step; after some timed ones, deal the instructions to threads if that pays."""
        measuring = loaded.threads > 1 and bound.timed_steps < MEASURED_STEPS
        bound.plan.run(feeds, timed=measuring or loaded.tracing)
        fetched = bound.plan.fetched()
        if measuring:
            bound.timed_steps += 1
            if bound.timed_steps == MEASURED_STEPS:
                self._deal(loaded, bound)
        return fetched

    def _deal(self, loaded: _Loaded, bound: _Bound) -> None:
        needs, seconds = bound.binder.needs(), bound.plan.seconds
        chosen, expected = deal(seconds, needs, loaded.threads)
        if not worth_dealing(seconds, expected):
            return
        trace = bound.plan.trace
        loaded.alive = loaded.last = bound.plan = bound.binder.plan(chosen)
        bound.plan.trace = trace
        bound.plan.lanes = Lanes(
            bound.plan.instructions,
            chosen,
            needs,
            every_lock=loaded.every_lock,
            within=self.within,
            on_failure=self.group.abort if self.group is not None else lambda reason: None,
        )

    def _bound(self, loaded: _Loaded, feeds: Sequence[np.ndarray], idle: bool) -> _Bound:
        key = (*(spec_of(array) for array in feeds), idle)
        bound = loaded.plans.get(key)
        if bound is None:
            bound = loaded.plans[key] = self._bind(loaded, feeds, idle)
            if len(loaded.plans) > PLANS_KEPT:
                loaded.plans.popitem(last=False)[1].plan.close()
        else:
            loaded.plans.move_to_end(key)
        return bound

    def _bind(self, loaded: _Loaded, feeds: Sequence[np.ndarray], idle: bool) -> _Bound:
        scope = self.scopes.setdefault(loaded.scope, {})

        def held(name: str) -> Spec | None:
            return spec_of(scope[name]) if name in scope else None

        def allocate(name: str, spec: Spec) -> np.ndarray:
            if name not in scope:
                scope[name] = np.zeros(spec.shape, to_numpy(spec.dtype))
            return scope[name]

        program = loaded.program
        specs = infer_specs(program, [_bindable(spec_of(a), idle) for a in feeds], held)
        binder = Binder(
            program,
            Device(seed=program.seed),
            specs,
            allocate,
            loaded.buckets,
            self.group,
            rank=self.rank,
            within=self.within,
            idle=idle,
        )
        return _Bound(binder)

    def _forget_plans(self, scope: int) -> None:
        for loaded in self.programs.values():
            if loaded.scope == scope:
                loaded.forget_plans()


def _bindable(spec: Spec, idle: bool) -> Spec:
    """Shapes are inferred as if a place without rows had one."""
    if idle and spec.shape and spec.shape[0] == 0:
        return Spec((1, *spec.shape[1:]), spec.dtype)
    return spec
