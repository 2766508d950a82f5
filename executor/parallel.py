"""One program on the replicas of a gang: compile, feed, step, fetch, and keep the driver's scope true."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..graph.compile import compile_program
from ..graph.ops.registry import Spec
from ..graph.passes.target import Target
from ..graph.program import Program
from ..graph.replica_program import ReplicaProgram
from ..graph.report import CompileReport
from ..strategies.errors import (
    EnforceNotMet,
    FeedError,
    FeedTypeError,
    InvalidType,
    InvalidValue,
    Unsupported,
)
from .bind import infer_specs, spec_of
from .capabilities import capabilities
from .executor import as_tensors, check_initialized, set_scheduled_rate
from .feeds import check, convert, first_rows, split
from .gang import Gang, current_config, gang_for
from .place import Place
from .scope import Scope
from .threads import launch_threads

if TYPE_CHECKING:
    from ..strategies.build import BuildStrategy
    from ..strategies.execution import ExecutionStrategy

SHAPES_KEPT = 64
_OWN_SETTINGS = ("num_threads", "use_cuda")


class DeviceValues:
    """A device scope on every replica: the persistables of one program and of those that share them.

    It is the :class:`Link` of the driver's tensors. ``version`` counts the steps that wrote.
    """

    def __init__(self, gang: Gang, scope: Scope) -> None:
        self.gang = gang
        self.scope = scope
        self.id = gang.new_id()
        self.version = 0
        self.dirty: set[str] = set()
        self.names: set[str] = set()
        gang.before_close(self.bring_home)

    def bring_home(self) -> None:
        """Fetch the newest values into the driver's scope, which from then on stands alone."""
        for name in self.names:
            tensor = self.scope.home(name).get_tensor()
            if tensor.link is self:
                if tensor.initialized:
                    tensor.memory()
                tensor.link = None

    def pull(self, name: str) -> np.ndarray:
        """Return the value of ``name`` on replica 0."""
        return self.gang.read(self.id, name)

    def adopt(self, names: Sequence[str]) -> None:
        """Let the driver's tensors of these names be views of this device scope, from the user's values."""
        for name in names:
            if name not in self.names:
                self.names.add(name)
                self.dirty.add(name)
        for name in self.names:
            tensor = self.scope.home(name).get_tensor()
            if tensor.link is not self:
                if name in self.dirty and tensor.initialized:
                    tensor.memory()  # what another program's replicas made of it, before the link changes
                tensor.link, tensor.link_version = self, -1

    def flush(self) -> None:
        """Broadcast what the user wrote since the last step."""
        if not self.dirty:
            return
        names, arrays = [], []
        for name in sorted(self.dirty):
            tensor = self.scope.home(name).get_tensor()
            if tensor.initialized:
                names.append(name)
                arrays.append(tensor.memory())
        self.gang.write(self.id, names, arrays)
        self.dirty.clear()


class _Version:
    """The program compiled for certain feeds and fetches, and loaded on the gang."""

    def __init__(self, program: ReplicaProgram, number: int) -> None:
        self.program = program
        self.number = number
        self.writes = bool(program.written_names())
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
        self.loss_name = loss_name
        self.build = build_strategy if build_strategy is not None else BuildStrategy()
        self.execution = exec_strategy if exec_strategy is not None else ExecutionStrategy()
        refuse_unbuilt(self.build, self.execution)
        if self.execution.num_threads == 0:
            self.execution.num_threads = 2 * len(self.places)
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
        self._versions: dict[tuple[Any, ...], _Version] = {}

    def run(
        self,
        feed: Any,
        fetch_names: tuple[str, ...],
        return_numpy: bool = True,
        return_merged: bool = True,
    ) -> list[Any]:
        """Run one step on every place; results are joined on dim 0 in place order unless told otherwise."""
        shares = self._shares(feed)
        version = self._version(tuple(shares[0]), fetch_names)
        self._check(version, shares)
        if self.program.lr_scheduler is not None:
            set_scheduled_rate(self.program, self.values.scope)
        self.values.adopt(version.program.state_names())
        self.values.flush()
        self._since_drop += 1
        drop = (
            bool(fetch_names) or self._since_drop >= self.execution.num_iteration_per_drop_scope > 0
        )
        feeds = [list(share.values()) for share in shares]
        rows = first_rows(self.program, shares)
        dropped = [v.number for v in self._versions.values()] if drop else []
        fetched = self.gang.step(version.number, self.steps, rows, feeds, dropped)
        self.steps += 1
        self._since_drop = 0 if drop else self._since_drop
        if version.writes:
            self.values.version += 1
        return merge(fetch_names, fetched, return_numpy, return_merged)

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

    def _shares(self, feed: Any) -> list[dict[str, np.ndarray]]:
        """Return what each place is fed."""
        count = len(self.places)
        if feed is None:
            return [{} for _ in range(count)]
        if isinstance(feed, Mapping):
            shares = split(self.program, convert(self.program, feed), count)
        elif isinstance(feed, (list, tuple)):
            if len(feed) != count:
                raise FeedError(f"the feed list has {len(feed)} elements for {count} places.")
            for item in feed:
                if not isinstance(item, Mapping):
                    raise InvalidType(
                        f"each element of a feed list must be a dict, got {type(item).__name__}."
                    )
            shares = [convert(self.program, item) for item in feed]
        else:
            raise FeedTypeError(
                f"feed must be a dict or a list of dicts, got {type(feed).__name__}."
            )
        names = list(shares[0])
        for i, share in enumerate(shares):
            if set(share) != set(names):
                raise FeedError(
                    f"place {i} is fed {sorted(share)}, place 0 {sorted(names)}: feed the same names."
                )
        return [{name: share[name] for name in names} for share in shares]

    def _version(self, feeds: tuple[str, ...], fetches: tuple[str, ...]) -> _Version:
        key = (self.program.version, feeds, fetches)
        if key not in self._versions:
            target = Target(
                replicas=len(self.places),
                strategy=self.build,
                has_loss=self.loss_name is not None,
                bucket_bytes=current_config().bucket_bytes,
            )
            self.compilations += 1
            compiled = compile_program(self.program, feeds, fetches, target, capabilities())
            self.report = compiled.report
            check_initialized(compiled.program.needed_names(), self.values.scope)
            number = self.gang.load(compiled.program.to_json(), self.values.id)
            self._versions[key] = _Version(compiled.program, number)
        return self._versions[key]

    def _check(self, version: _Version, shares: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Refuse shapes and dtypes that cannot pass shape inference, once per combination."""
        for share in shares:
            key = tuple([(a.shape, a.dtype) for a in share.values()])
            if key in version.checked:
                continue
            check(self.program, share)
            infer_specs(version.program, [spec_of(a) for a in share.values()], self._held)
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


def refuse_unbuilt(build: BuildStrategy, execution: ExecutionStrategy) -> None:
    """Refuse strategies whose effect on results is not built yet.

    Raises:
        Unsupported: names the fields.
    """
    from ..strategies.base import unbuilt

    refused = unbuilt(build)[1] + unbuilt(execution)[1]
    if refused:
        raise Unsupported(
            f"these strategy settings are not built yet: {', '.join(refused)}. Leave the defaults."
        )


def merge(
    names: Sequence[str],
    fetched: Sequence[Sequence[np.ndarray]],
    return_numpy: bool,
    return_merged: bool,
) -> list[Any]:
    """Join what the places fetched: concatenated on dim 0, or one list per fetch.

    Raises:
        InvalidValue: shapes of a fetch differ between places in other dimensions than the first.
    """
    if not return_merged:
        columns = [[place[i] for place in fetched] for i in range(len(names))]
        if return_numpy:
            return columns
        return [as_tensors([name] * len(c), c) for name, c in zip(names, columns, strict=True)]
    merged = []
    for i, name in enumerate(names):
        parts = [np.atleast_1d(place[i]) for place in fetched]
        if any(
            part.shape[1:] != parts[0].shape[1:] or part.dtype != parts[0].dtype for part in parts
        ):
            shapes = ", ".join(str(list(part.shape)) for part in parts)
            raise InvalidValue(
                f"fetch {name!r}: the places' values cannot be joined on dim 0: {shapes}. "
                f"Use return_merged=False."
            )
        merged.append(parts[0] if len(parts) == 1 else np.concatenate(parts))
    return merged if return_numpy else as_tensors(names, merged)
