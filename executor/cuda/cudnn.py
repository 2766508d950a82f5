"""Convolutions, batch norm and attention by cuDNN, through its frontend; CuPy has no binding of it.

The library's plan for a graph is chosen once, before any graph is captured: a few are timed on this GPU, and
the fastest is stored on disk with its compiled kernels. Each gives the same bits every time.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from functools import cache, cached_property, partial
from typing import Any

from ...strategies.errors import ExecutionError
from ..host.disk_cache import disk_cache, entry
from .bench import Bench, first_line
from .cudnn_graphs import extra, plan_graph
from .dnn import BatchNorm, Convolution, Dnn, Graph
from .runtime import Runtime

_log = logging.getLogger("rowlock")
_TIMED, _TIMED_ELSE = (
    8,
    2,
)  # plans: of convolutions; of graphs whose plans take a second each to compile
_ALIGNMENT = 256


@cache
def version() -> str:
    """Return the versions of cuDNN and its frontend, "" if one is not installed."""
    try:
        cudnn = importlib.import_module("cudnn")
        return f"{cudnn.backend_version_string()} (frontend {cudnn.__version__})"
    except Exception:  # one is missing or does not load, for which the frontend has no class
        return ""


class Cudnn(Dnn):
    """Computes on one GPU."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.cudnn = importlib.import_module("cudnn")
        self._plans: dict[Graph, CudnnPlan | None] = {}

    @cached_property
    def handle(self) -> Any:
        """The library's handle, on the stream of kernels."""
        self.runtime.use()
        handle = self.cudnn.create_handle()
        self.cudnn.set_stream(handle, self.runtime.compute.ptr)
        return handle

    def workspace(self, graph: Graph) -> int | None:
        plan = self._plan(graph)
        return None if plan is None else plan.workspace

    def bind(self, graph: Graph, arrays: Mapping[str, Any], workspace: Any) -> CudnnCall:
        plan = self._plan(graph)
        if plan is None:
            raise ExecutionError(f"cuDNN {version()} cannot compute {graph}.")
        addresses = [self.runtime.address(arrays[name]) for name in graph.operands]
        return CudnnCall(plan, addresses, self.runtime.address(workspace), (arrays, workspace))

    def _plan(self, graph: Graph) -> CudnnPlan | None:
        if graph not in self._plans:
            try:
                self._plans[graph] = self._load_plan(graph) or self._fastest(graph)
            except Exception as error:  # the frontend raises many classes, others in other versions
                _log.warning("cuDNN leaves %s to other kernels: %s", graph, first_line(error))
                self._plans[graph] = None
        return self._plans[graph]

    def renewed(self, plan: CudnnPlan, error: Exception) -> CudnnPlan:
        """Return a plan to run instead of a stored one that failed, in no more workspace; that is forgotten.

        Raises:
            Exception: there is none.
        """
        graph, now = plan.graph, self._plans[plan.graph]
        if now is None or now is plan:
            _log.warning("a stored plan of cuDNN for %s fails: %s", graph, first_line(error))
            disk_cache().drop(self._name(graph))
            now = self._plans[graph] = self._fastest(graph)
        if now.workspace > plan.workspace:
            raise ExecutionError(
                f"{graph} needs {now.workspace:,} bytes of workspace now"
            ) from error
        return now

    def _load_plan(self, graph: Graph) -> CudnnPlan | None:
        """Return the stored plan; None without one, or if it does not load any more."""
        disk, name = disk_cache(), self._name(graph)
        data = disk.read(name)
        if data is None:
            return None
        graph_plans = self.cudnn.pygraph(handle=self.handle)
        try:
            graph_plans.deserialize(self.handle, data)
            return CudnnPlan(self, graph, graph_plans, stored=True)
        except Exception as error:
            _log.info("a stored plan of cuDNN for %s does not load: %s", graph, first_line(error))
            disk.drop(name)
            return None

    def _name(self, graph: Graph) -> str:
        """Return the name under which a graph's plan is stored."""
        return entry(f"{version()} {self.runtime.properties.name} {graph!r}", ".plan")

    def _fastest(self, graph: Graph) -> CudnnPlan:
        """Return the plan that runs fastest; without room to try them, the library's first."""
        candidates = plan_graph(graph, handle=self.handle)
        limit = _TIMED if isinstance(graph, Convolution) else _TIMED_ELSE
        indices = build_plans(candidates, limit)
        if not indices:
            raise ValueError("no plan can be built")
        plans = {i: CudnnPlan(self, graph, candidates, i) for i in indices}
        sizes = {name: operand.nbytes for name, operand in graph.operands.items()}
        try:
            bench = Bench(self.runtime, sizes, max(p.workspace for p in plans.values()))
        except MemoryError:
            return plans[indices[0]]
        memory = list(bench.addresses.values()), self.runtime.address(bench.workspace)
        calls = {i: partial(plan.run, *memory) for i, plan in plans.items()}
        hides_nan = isinstance(graph, BatchNorm) and graph.relu
        best = bench.fastest(calls, ("x", "y") if hides_nan else None)
        if best is None:
            raise ValueError("no plan runs, or each plan's relu turns NaN into zero")
        try:
            single = one_plan(graph, best, handle=self.handle)
            disk_cache().write(self._name(graph), bytes(single.serialize()), first=True)
        except Exception as error:
            _log.info("cuDNN cannot single out a plan for %s: %s", graph, first_line(error))
            return plans[best]
        return self._load_plan(graph) or CudnnPlan(self, graph, single)


def build_plans(candidates: Any, limit: int) -> list[int]:
    """Build the first ``limit`` plans that can be built, and return their numbers."""
    indices: list[int] = []
    for i in range(candidates.get_execution_plan_count()):
        if len(indices) == limit:
            break
        try:
            candidates.build_plan_at_index(i)
        except Exception as error:  # it rounds, needs too much workspace, …
            _log.debug("cuDNN's plan %d cannot be built: %s", i, first_line(error))
            continue
        indices.append(i)
    return indices


def one_plan(graph: Graph, index: int, **device: Any) -> Any:
    """Return the graph anew with one of its plans built, which it will use."""
    plans = plan_graph(graph, **device)
    plans.select_plan(index)
    plans.build_plans()
    return plans


class CudnnPlan:
    """One way to compute a graph; ``index``: its number where the graph has several; ``stored``: from disk."""

    def __init__(
        self,
        dnn: Cudnn,
        graph: Graph,
        plans: Any,
        index: int | None = None,
        stored: bool = False,
    ) -> None:
        self.dnn, self.graph, self.stored = dnn, graph, stored
        self._candidates, self._index = plans, index
        needs = (
            plans.get_workspace_size()
            if index is None
            else plans.get_workspace_size_plan_at_index(index)
        )
        self._at = [-(-needs // _ALIGNMENT) * _ALIGNMENT]  # offsets of further operands behind it
        for nbytes in extra(graph):
            self._at.append(self._at[-1] + -(-nbytes // _ALIGNMENT) * _ALIGNMENT)

    @property
    def workspace(self) -> int:
        """Bytes of scratch memory, including operands that only this call uses."""
        return self._at[-1]

    def run(self, addresses: list[int], workspace: int) -> None:
        """Put it on the compute stream."""
        further = [workspace + at for at in self._at[:-1]]
        pack = dict(enumerate([*addresses, *further], 1))
        if self._index is None:
            self._candidates.execute(pack, workspace, handle=self.dnn.handle)
        else:
            self._candidates.execute_plan_at_index(
                pack, workspace, self._index, handle=self.dnn.handle
            )


class CudnnCall:
    """One call; calling it puts it on the compute stream."""

    captured = True

    def __init__(self, plan: CudnnPlan, addresses: list[int], workspace: int, arrays: Any) -> None:
        self.graph = plan.graph
        self._arrays_alive = arrays  # keeps the arrays alive
        self._plan, self._addresses, self._workspace = plan, addresses, workspace

    def __call__(self) -> None:
        try:
            self._plan.run(self._addresses, self._workspace)
        except Exception as error:
            if not self._runs_anew(error):
                text = f"{self.graph}: cuDNN {version()} says {first_line(error)}"
                raise ExecutionError(text) from error

    def _runs_anew(self, error: Exception) -> bool:
        """Run another plan instead of a stored one that failed; tell whether that could be done."""
        if not self._plan.stored:
            return False
        try:
            self._plan = self._plan.dnn.renewed(self._plan, error)
            self._plan.run(self._addresses, self._workspace)
        except Exception as other:
            _log.warning("nor does another plan for %s run: %s", self.graph, first_line(other))
            return False
        return True
