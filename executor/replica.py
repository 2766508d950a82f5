"""Replica: one copy of the training program, wherever it runs. It answers messages; gangs deliver them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..graph.ops.registry import Spec
from ..graph.replica_program import ReplicaProgram
from ..strategies.errors import CollectiveAborted, NotInitialized
from ..strategies.types import to_numpy
from .bind import AllReduce, Binder, Buckets, infer_specs, spec_of
from .device import Device
from .plan import Plan

PLANS_KEPT = 16  # per program: one for each combination of feed shapes met lately


class Message(NamedTuple):
    """What travels between driver and replica: a kind, a head of plain data, and arrays."""

    kind: str
    head: Mapping[str, Any]
    arrays: Sequence[np.ndarray] = ()


class Group(AllReduce, Protocol):
    """A collective group as a replica uses it."""

    rank: int
    size: int

    def abort(self, reason: str) -> None:
        """Release every rank that waits; they raise CollectiveAborted."""
        ...

    def reset(self, epoch: int) -> None:
        """Make the group usable again; every rank calls it with the same number."""
        ...

    def close(self) -> None:
        """Let go of memory and peers."""
        ...


class _Loaded:
    """A program on this replica: its gradient buckets and the plans bound so far."""

    def __init__(self, program: ReplicaProgram, scope: int, group: Group | None) -> None:
        self.program = program
        self.scope = scope
        self.buckets = Buckets(program, group if program.buckets else None)
        self.plans: OrderedDict[tuple[Spec, ...], Plan] = OrderedDict()
        self.alive: Plan | None = None


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
        program = ReplicaProgram.from_json(head["program"])
        self._meet(head)
        self.programs[head["id"]] = _Loaded(program, head["scope"], self.group)
        return Message("ok", {})

    def on_unload(self, head: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> Message:
        """Forget programs and device scopes."""
        for program in head["programs"]:
            self.programs.pop(program, None)
        for scope in head["scopes"]:
            self.scopes.pop(scope, None)
        return Message("ok", {})

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
        """Run one step of a loaded program on what was fed; return what is fetched."""
        self._meet(head)
        loaded = self.programs[head["id"]]
        plan = self._plan(loaded, tuple(spec_of(a) for a in arrays))
        plan.device.clock.step, plan.device.clock.row = head["step"], head["row"]
        loaded.alive = plan
        fetched = plan.run(arrays)
        for number in head["drop"]:
            self.programs[number].alive = None
        return Message("fetched", {}, fetched)

    def on_drop(self, head: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> Message:
        """End the life of a program's temporaries and give their memory back."""
        loaded = self.programs.get(head["id"])
        if loaded is not None:
            loaded.alive = None
            loaded.plans.clear()
        return Message("ok", {})

    def on_temporaries(self, head: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> Message:
        """Tell how many temporaries of a program are alive, and their bytes."""
        plan = self.programs[head["id"]].alive
        count, nbytes = plan.temporaries if plan is not None else (0, 0)
        return Message("temporaries", {"count": count, "bytes": nbytes})

    def on_plan(self, head: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> Message:
        """Return the text of the plan a program ran last."""
        plans = self.programs[head["id"]].plans
        return Message("plan", {"text": str(next(reversed(plans.values()))) if plans else ""})

    def close(self) -> None:
        """Let go of everything."""
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

    def _plan(self, loaded: _Loaded, feeds: tuple[Spec, ...]) -> Plan:
        plan = loaded.plans.get(feeds)
        if plan is None:
            plan = self._bind(loaded, feeds)
            loaded.plans[feeds] = plan
            if len(loaded.plans) > PLANS_KEPT:
                loaded.plans.popitem(last=False)
        else:
            loaded.plans.move_to_end(feeds)
        return plan

    def _bind(self, loaded: _Loaded, feeds: tuple[Spec, ...]) -> Plan:
        scope = self.scopes.setdefault(loaded.scope, {})

        def held(name: str) -> Spec | None:
            return spec_of(scope[name]) if name in scope else None

        def allocate(name: str, spec: Spec) -> np.ndarray:
            if name not in scope:
                scope[name] = np.zeros(spec.shape, to_numpy(spec.dtype))
            return scope[name]

        specs = infer_specs(loaded.program, feeds, held)
        device = Device(seed=loaded.program.seed)
        binder = Binder(
            loaded.program, device, specs, allocate, loaded.buckets, self.group, self.within
        )
        return binder.plan(self.rank)

    def _forget_plans(self, scope: int) -> None:
        for loaded in self.programs.values():
            if loaded.scope == scope:
                loaded.plans.clear()
