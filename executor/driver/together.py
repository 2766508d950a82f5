"""Together: agree with other trainers on one program, the same kernels, and the first values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...graph.compile import Compiled
from ...graph.ir.graph import STATE
from ...graph.ir.replica_program import NodeRecord, ReplicaProgram
from ...graph.program.program import Program
from ...strategies.endpoints import checked_endpoints
from ...strategies.errors import (
    EnforceNotMet,
    InvalidArgument,
    InvalidValue,
    RowlockError,
    Unsupported,
)
from ...strategies.types import VarType
from ..gang.gang import Gang
from ..gang.launchers import launcher_of
from ..gang.trainers import ENDPOINTS, Trainers, listed_endpoints
from ..gang.worlds import World
from ..replica.orders import Spread

if TYPE_CHECKING:
    from ...strategies.build import BuildStrategy


def trainers_of(build: BuildStrategy, program: Program, has_loss: bool) -> Trainers | None:
    """Return the trainers that a data-parallel program is trained by, None if this driver runs it alone.

    Their endpoints are those of the strategy, of the transpiled program, or of the environment. A program
    without a loss sums no gradients: it runs on this driver's own places.

    Raises:
        InvalidArgument: there are several trainers, and no list of them, or one of another length.
        InvalidValue: an endpoint is not ``ip:port``, or stands there twice.
        EnforceNotMet: ``trainer_id`` is none of the trainers.
        Unsupported: a strategy that several trainers cannot follow.
    """
    count, own = build.num_trainers, build.trainers_endpoints
    if own and len(own) != count:
        raise InvalidArgument(
            f"num_trainers is {count}, but there are {len(own)} trainers_endpoints ({', '.join(own)}). Give "
            f"one for each trainer."
        )
    if count < 1:
        raise EnforceNotMet(f"num_trainers must be at least 1, got {count}.")
    if build.trainer_id < 0 or build.trainer_id >= count > 1:  # scripts that train alone give any
        raise EnforceNotMet(
            f"trainer_id={build.trainer_id} must be at least 0 and below the number of trainers ({count})."
        )
    if count == 1 or not has_loss:
        return None
    endpoints = list(own or program._trainers_endpoints or listed_endpoints())
    if len(endpoints) != count:
        listed = (
            f"{len(endpoints)} endpoints ({', '.join(endpoints)})" if endpoints else "no endpoints"
        )
        raise InvalidArgument(
            f"num_trainers is {count}, and there are {listed}: list one for each trainer, in the same order "
            f"everywhere, in BuildStrategy.trainers_endpoints, by transpiling in nccl2 mode, or in "
            f"{ENDPOINTS}."
        )
    endpoints = checked_endpoints("trainers_endpoints", endpoints)
    for field in ("reduce_strategy", "gradient_scale_strategy"):
        value = getattr(build, field).name
        if value in _ALONE:
            raise Unsupported(f"{field}={value} with num_trainers={count}: {_ALONE[value]}")
    return Trainers(tuple(endpoints), build.trainer_id)


_ALONE = {
    "Reduce": "what one replica owns lies on another trainer's host, from where this one could not save it. "
    "Use ReduceStrategy.AllReduce.",
    "_NoReduce": "trainers that do not meet are programs of their own. Leave num_trainers at 1.",
    "SampleWeighted": "no trainer knows how many samples the others have. Use CoeffNumDevice, and feed each "
    "place as many.",
}


class Together:
    """One run's part in the training of several trainers. ``world`` is where they met last.

    ``rings``: the program meets by ops of its own, and need not be that of the others.
    """

    def __init__(
        self, trainers: Trainers, gang: Gang, device: str, within: float, rings: bool = False
    ) -> None:
        self.trainers, self._gang, self._device, self._within = trainers, gang, device, within
        self.rings = rings
        self.world: World | None = None
        self._kernels: dict[tuple[str, ...], str] | None = None  # None: not agreed yet
        self._root, self.steps = 0, 0
        self._spread = True

    def meet(self) -> bool:
        """Meet the trainers if that is to be done; tell whether they met anew, and nothing is agreed on.

        Raises:
            TrainerLost: one does not come.
            InvalidValue: trainers disagree about who they are.
        """
        table = launcher_of(self._gang.config).table
        world = self._gang.world(self.trainers, self._device, table)
        if world is self.world:
            return False
        self.world, self._kernels, self._spread = world, None, True
        return True

    @property
    def chooses(self) -> bool:
        """Whether this trainer chooses kernels, for all or for itself."""
        return self.rings or self.trainers.trainer == 0

    @property
    def agreed(self) -> bool:
        """Whether all have said that they train the same program."""
        return self._kernels is not None

    def agree(self, compiled: Compiled, steps: int) -> Compiled:
        """Return the program with the kernels of trainer 0, once all have compiled the same, ``steps`` done.

        Raises:
            InvalidValue: a trainer has another program; names the first op, or persistable, that differs.
            TrainerLost: one does not come.
        """
        world, program = self.world, compiled.program
        assert world is not None
        if self.rings:
            return compiled
        if self._kernels is None:
            own = {"nodes": _described(program), "states": _states(program), "steps": steps}
            own["kernels"] = [node.kernel for node in program.nodes]
            world.programs += 1
            everyone = world.exchange(f"program {world.programs}", own, self._within)
            for trainer, other in enumerate(everyone):
                problem = _difference(everyone[0], other, trainer)
                if problem:
                    raise InvalidValue(
                        f"{world.cards[trainer]} has another program than {world.cards[0]}: {problem}. Build "
                        f"the same on every trainer."
                    )
            done = [other["steps"] for other in everyone]
            self._root, self.steps = done.index(max(done)), max(done)
            makes = (_makes(program, node) for node in program.nodes)
            self._kernels = dict(zip(makes, everyone[0]["kernels"], strict=True))
        kernels = self._kernels
        nodes = tuple(
            replace(node, kernel=kernels.get(_makes(program, node), node.kernel))
            for node in program.nodes
        )
        return replace(compiled, program=replace(program, nodes=nodes))

    def spread(self, scope: int, names: Sequence[str]) -> bool:
        """Give all replicas the values of the trainer furthest on, once; tell whether it was done now."""
        if not self._spread or self.rings:
            return False
        assert self.world is not None
        root = self.world.first_rank(self._root)
        self._gang.all(Spread(self.world.name, root, scope, sorted(names)))
        self._spread = False
        return True

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Name the trainer at fault if training stops inside, and tell the others."""
        try:
            yield
        except RowlockError as error:
            world = self.world
            if world is None or world.ended is not None:  # the others know
                raise
            explained = world.explain(error)
            self._gang.worlds.part(world)
            raise explained from error


def _makes(program: ReplicaProgram, node: NodeRecord) -> tuple[str, ...]:
    """Return a node's op, and the names and versions of its results."""
    values = (program.values[i] for slot in node.outputs.values() for i in slot if i >= 0)
    return (node.op, *(f"{value.name} {value.version}" for value in values))


def _described(program: ReplicaProgram) -> list[Any]:
    """Return, per node: its op, its results, a hash of its attributes, and the line that built it."""
    lines = []
    for node in program.nodes:
        attrs = json.dumps(node.attrs, sort_keys=True, default=str)
        attrs = "" if "where" in attrs else hashlib.sha256(attrs.encode()).hexdigest()[:8]
        names = [program.values[i].name for slot in node.outputs.values() for i in slot if i >= 0]
        lines.append([node.op, names, attrs, node.where])
    return lines


def _states(program: ReplicaProgram) -> dict[str, str]:
    states = (value for value in program.values if value.kind == STATE)
    return {v.name: f"{VarType(v.dtype).name}{list(v.shape)}" for v in states}


def _difference(first: Mapping[str, Any], other: Mapping[str, Any], trainer: int) -> str:
    """Return how a trainer's program differs from trainer 0's; empty if it does not."""
    here, there = first["states"], other["states"]
    for name in [*here, *there]:
        if here.get(name) != there.get(name):
            return (
                f"the persistable {name!r} is {here.get(name, 'not there')} at trainer 0 and "
                f"{there.get(name, 'not there')} at trainer {trainer}"
            )
    for k, (a, b) in enumerate(zip(first["nodes"], other["nodes"], strict=False)):
        if a[:3] != b[:3]:
            what = "with other attributes" if a[:2] == b[:2] else f"that makes {', '.join(b[1])}"
            return (
                f"op {k} of a step is {a[0]} that makes {', '.join(a[1])} (built at {a[3]}) at trainer 0, and "
                f"{b[0]} {what} (built at {b[3]}) at trainer {trainer}"
            )
    counts = len(first["nodes"]), len(other["nodes"])
    if counts[0] != counts[1]:
        return f"a step has {counts[0]} ops at trainer 0 and {counts[1]} at trainer {trainer}"
    return ""
