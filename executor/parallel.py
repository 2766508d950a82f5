"""One program on the replicas of a gang: compile, feed, step, fetch."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..graph.compile import compile_program
from ..graph.lod import lod_sources
from ..graph.ops.registry import Spec
from ..graph.passes.target import Target
from ..graph.program import Program
from ..graph.replica_program import ReplicaProgram
from ..graph.report import CompileReport
from ..strategies.errors import (
    EnforceNotMet,
    FeedError,
    FeedTypeError,
    InvalidArgument,
    InvalidType,
    Unsupported,
)
from ..strategies.flags import flag_value
from .bind import infer_specs, spec_of
from .capabilities import capabilities
from .executor import check_initialized, set_scheduled_rate
from .feeds import Portion, check, convert, rows_of, sample_shares, sequences_in, split
from .fetches import Joined
from .gang import Gang, Share, current_config, gang_for
from .place import Place
from .reader import batches_for
from .run import Event
from .scope import Scope
from .threads import launch_threads
from .values import DeviceValues

if TYPE_CHECKING:
    from ..strategies.build import BuildStrategy
    from ..strategies.execution import ExecutionStrategy

SHAPES_KEPT = 64


class _Version:
    """The program compiled for certain feeds and fetches, and loaded on the gang."""

    def __init__(self, program: ReplicaProgram, number: int) -> None:
        self.program = program
        self.number = number
        self.writes = bool(program.written_names())
        self.states = program.state_names()
        self.owners = program.owners()
        self.batch = [i for i, v in enumerate(program.feeds) if program.values[v].varies]
        self.checked: OrderedDict[tuple[Any, ...], None] = OrderedDict()


class ParallelRun:
    """Runs a program in lockstep on several places."""

    values: DeviceValues

    def __init__(
        self,
        program: Program,
        places: Sequence[Place],
        scope: Scope,
        *,
        loss_name: str | None = None,
        build_strategy: BuildStrategy | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        share_with: ParallelRun | None = None,
        in_process: bool = False,
    ) -> None:
        from ..strategies.build import BuildStrategy
        from ..strategies.execution import ExecutionStrategy

        self.program = program
        self.places = list(places)
        self.has_loss = bool(loss_name)
        build = build_strategy if build_strategy is not None else BuildStrategy()
        execution = exec_strategy if exec_strategy is not None else ExecutionStrategy()
        for given, kind in ((build, BuildStrategy), (execution, ExecutionStrategy)):
            if not isinstance(given, kind):
                raise InvalidType(
                    f"a strategy must be of type {kind.__name__}, got {type(given).__name__}."
                )
        settle(build, execution)
        self._capped = execution.settle_threads(len(self.places))
        # What the user changes from now on has no effect on this program.
        self.build, self.execution = build.model_copy(deep=True), execution.model_copy(deep=True)
        if share_with is not None:
            self._check_shared(share_with)
        self.gang = self._join(share_with, in_process)
        self.values = (
            share_with.values if share_with is not None else DeviceValues(self.gang, scope)
        )
        self.report: CompileReport | None = None
        self.steps = 0
        self.compilations = 0
        self._since_drop = 0
        self._tracing = False
        self._last: _Version | None = None
        self._versions: dict[tuple[Any, ...], _Version] = {}

    def run(
        self,
        feed: Any,
        fetch_names: tuple[str, ...],
        return_numpy: bool = True,
        return_merged: bool = True,
    ) -> list[Any]:
        """Run a step on every place (or ``num_iteration_per_run`` of them); return what the last one fetches.

        Results are joined on dim 0 in place order unless told otherwise.
        """
        batches = self._batches(feed)
        parts = [self._parts(portions) for portions in batches]
        version = self._version(tuple(batches[0][0].arrays), fetch_names)
        for portions in batches:
            self._check(version, portions)
        shares = self._shares(version, batches, parts)
        if self.program.lr_scheduler is not None:
            set_scheduled_rate(self.program, self.values.scope)
        self.values.adopt(version.states, version.owners)
        self.values.flush()
        iterations = max(self.execution.num_iteration_per_run, 1)
        self._since_drop += iterations
        drop = (
            bool(fetch_names) or self._since_drop >= self.execution.num_iteration_per_drop_scope > 0
        )
        dropped = [v.number for v in self._versions.values()] if drop else []
        if version.writes:
            self.values.version += 1  # now: a step that is interrupted may have written, too
        fetched = self.gang.step(version.number, shares, self.steps, iterations, dropped)
        self.steps += iterations
        self._since_drop = 0 if drop else self._since_drop
        self._last = version
        joined = self._joined(version, fetch_names, fetched, batches[-1])
        if return_merged:
            return [one.merged(return_numpy) for one in joined]
        return [one.separate(return_numpy) for one in joined]

    def temporaries(self) -> tuple[int, int]:
        """Return how many temporaries are alive on all replicas, and their bytes."""
        answers = [
            a for v in self._versions.values() for a in self.gang.all("temporaries", id=v.number)
        ]
        return sum(a.head["count"] for a in answers), sum(a.head["bytes"] for a in answers)

    def drop(self) -> None:
        """End the life of temporaries on every replica and give their memory back."""
        for version in self._versions.values():
            self.gang.all("drop", id=version.number)
        self._since_drop = 0

    def trace(self, on: bool) -> None:
        """Keep the times of instructions from the next step on, or no longer."""
        self._tracing = on
        for version in self._versions.values():
            self.gang.all("trace", id=version.number, on=on)

    def executed(self) -> tuple[list[list[Event]], list[int]]:
        """Return, per place, the last traced step's events, and how many signals its threads exchange."""
        if self._last is None:
            return [], []
        answers = self.gang.all("trace", id=self._last.number, on=self._tracing)
        events = [
            [Event(op, tuple(writes), *rest) for op, writes, *rest in a.head["events"]]
            for a in answers
        ]
        return events, [a.head["signals"] for a in answers]

    def _join(self, share_with: ParallelRun | None, in_process: bool) -> Gang:
        if share_with is not None:
            return share_with.gang
        if in_process:
            return launch_threads(self.places, current_config())
        return gang_for(self.places)

    def _check_shared(self, source: ParallelRun) -> None:
        if len(source.places) != len(self.places):
            raise EnforceNotMet(
                f"share_vars_from: that program runs on {len(source.places)} places, this one on "
                f"{len(self.places)}; they must be as many."
            )

    @property
    def _weighted(self) -> bool:
        return self.build.gradient_scale_strategy.name == "SampleWeighted"

    @property
    def _partial(self) -> bool:
        """Whether a place may get no rows: no gradient would be missing, or its weight is zero."""
        return not self.has_loss or self._weighted

    def _batches(self, feed: Any) -> list[list[Portion]]:
        """Return what each place is fed: once for the whole call, or once for each of its steps if read."""
        iterations = max(self.execution.num_iteration_per_run, 1)
        within = current_config().step_deadline_s
        read = batches_for(
            self.program, feed, len(self.places), iterations, within, partial=self._partial
        )
        if read is None:
            return [self._portions(feed)]
        given = self._portions(feed)
        return [
            [
                Portion({**own.arrays, **more.arrays}, {**own.lods, **more.lods})
                for own, more in zip(given, self._portions(batches), strict=True)
            ]
            for batches in read
        ]

    def _portions(self, feed: Any) -> list[Portion]:
        """Return what each place is fed."""
        count = len(self.places)
        if feed is None:
            return [Portion({}, {}) for _ in range(count)]
        if isinstance(feed, Mapping):
            arrays = convert(self.program, feed)
            return split(self.program, arrays, sequences_in(feed), count, partial=self._partial)
        if not isinstance(feed, (list, tuple)):
            raise FeedTypeError(
                f"feed must be a dict or a list of dicts, got {type(feed).__name__}."
            )
        if len(feed) != count:
            raise FeedError(f"the feed list has {len(feed)} elements for {count} places.")
        for item in feed:
            if not isinstance(item, Mapping):
                raise InvalidType(
                    f"each element of a feed list must be a dict, got {type(item).__name__}."
                )
        portions = [Portion(convert(self.program, item), sequences_in(item)) for item in feed]
        return self._alike(portions)

    def _alike(self, portions: list[Portion]) -> list[Portion]:
        """Check that every place is fed the same names, and rows where it must be; order names alike."""
        names = list(portions[0].arrays)
        for i, portion in enumerate(portions):
            if set(portion.arrays) != set(names):
                raise FeedError(
                    f"place {i} is fed {sorted(portion.arrays)}, place 0 {sorted(names)}: "
                    f"feed the same names."
                )
        for name, counts in rows_of(self.program, portions).items():
            if not all(counts) and not (self._partial and any(counts)):
                raise FeedError(
                    f"feed {name!r}: place {counts.index(0)} gets no rows (rows by place: {counts})."
                )
        return [Portion({name: p.arrays[name] for name in names}, p.lods) for p in portions]

    def _parts(self, portions: Sequence[Portion]) -> list[float]:
        """Return what each place's samples weigh, if they are weighed."""
        if not (self._weighted and self.has_loss):
            return [1.0] * len(portions)
        return sample_shares(rows_of(self.program, portions))

    def _shares(
        self,
        version: _Version,
        batches: Sequence[Sequence[Portion]],
        parts: Sequence[Sequence[float]],
    ) -> list[Share]:
        """Return the arrays of each place, and where its rows stand among all."""
        shares = [Share([], [], [], []) for _ in self.places]
        for portions, weights in zip(batches, parts, strict=True):
            first = 0
            for share, portion, weight in zip(shares, portions, weights, strict=True):
                arrays = list(portion.arrays.values())
                lengths = [len(arrays[k]) if arrays[k].ndim else 0 for k in version.batch]
                count = max(lengths) if lengths else 1
                share.arrays.extend(arrays)
                share.rows.append(first)
                share.parts.append(weight)
                share.idle.append(count == 0)
                first += count
        return shares

    def _version(self, feeds: tuple[str, ...], fetches: tuple[str, ...]) -> _Version:
        key = (feeds, fetches)
        if key not in self._versions:
            compiled = compile_program(self.program, feeds, fetches, self._target(), capabilities())
            self.compilations += 1
            self.report = compiled.report
            check_initialized(compiled.program.needed_names(), self.values.scope)
            in_order = self._target().in_program_order
            number = self.gang.load(
                compiled.program.to_json(),
                self.values.id,
                threads=1 if in_order else self.execution.num_threads,
                capped=self._capped,
                every_lock=not self.build.remove_unnecessary_lock,
            )
            self._versions[key] = _Version(compiled.program, number)
            weakref.finalize(self, self.gang.forget, "programs", number)
            if self._tracing:
                self.gang.all("trace", id=number, on=True)
        return self._versions[key]

    def _target(self) -> Target:
        megabytes = flag_value("FLAGS_fuse_parameter_memory_size")
        members = flag_value("FLAGS_fuse_parameter_groups_size")
        return Target(
            replicas=len(self.places),
            strategy=self.build,
            has_loss=self.has_loss,
            bucket_bytes=(
                int(megabytes * 2**20) if megabytes > 0 else current_config().bucket_bytes
            ),
            bucket_members=members if members > 1 else 0,
            delay_collectives=self.execution.allow_op_delay,
            barrier=self.execution.use_thread_barrier,
        )

    def _check(self, version: _Version, portions: Sequence[Portion]) -> None:
        """Refuse shapes and dtypes that cannot pass shape inference, once per combination."""
        for portion in portions:
            key = tuple([(a.shape, a.dtype) for a in portion.arrays.values()])
            if key in version.checked:
                continue
            check(self.program, portion.arrays)
            if all(a.size or not a.ndim for a in portion.arrays.values()):
                specs = [spec_of(a) for a in portion.arrays.values()]
                infer_specs(version.program, specs, self._held)
            version.checked[key] = None
            if len(version.checked) > SHAPES_KEPT:
                version.checked.popitem(last=False)

    def _held(self, name: str) -> Spec | None:
        found = self.values.scope.find_var(name)
        return (
            spec_of(found.get_tensor().memory())
            if found and found.get_tensor().initialized
            else None
        )

    def _joined(
        self,
        version: _Version,
        names: Sequence[str],
        fetched: Sequence[Sequence[np.ndarray]],
        portions: Sequence[Portion],
    ) -> list[Joined]:
        fed = {name for portion in portions for name in portion.lods}
        if not fed:
            return [Joined(name, [place[i] for place in fetched]) for i, name in enumerate(names)]
        return [
            Joined(
                name,
                [place[i] for place in fetched],
                [portion.lods.get(source, ()) if source else () for portion in portions],
            )
            for i, (name, source) in enumerate(
                zip(names, lod_sources(version.program, fed), strict=True)
            )
        ]


def settle(build: BuildStrategy, execution: ExecutionStrategy) -> None:
    """Refuse strategies that contradict themselves or whose effect is not built; write what compiling decides.

    Raises:
        InvalidArgument: as many trainers as endpoints are needed.
        EnforceNotMet: ``trainer_id`` is none of the trainers.
        Unsupported: names the fields.
    """
    from ..strategies.base import unbuilt

    ends = len(build.trainers_endpoints)
    if ends and build.num_trainers != ends:
        raise InvalidArgument(
            f"num_trainers is {build.num_trainers}, but there are {ends} trainers_endpoints."
        )
    if build.trainer_id < 0 or (ends and build.trainer_id >= ends):
        raise EnforceNotMet(
            f"trainer_id={build.trainer_id} must be at least 0 and below the number of trainers "
            f"({ends or build.num_trainers})."
        )
    refused = unbuilt(build)[1] + unbuilt(execution)[1]
    if refused:
        raise Unsupported(
            f"these strategy settings are not built yet: {', '.join(refused)}. Leave the defaults."
        )
    build.is_distribution = False  # no send or recv ops: Paddle overwrites it, too
    if build.sync_batch_norm and not build._finalized:
        build.enable_sequential_execution = True
