"""A stand-in for cuDNN's frontend: graphs have a few plans of known times, and nothing is computed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from rowlock.executor.simulated.simulated import SimulatedRuntime

RESULTS = {"batchnorm": 5, "batchnorm_backward": 3, "sdpa": 2, "sdpa_backward": 3}


class NotSupported(Exception):
    """What cuDNN raises where it has no plan."""


class Frontend:
    """The module: ``times`` are those of plans in milliseconds; plans in ``barred`` cannot be built."""

    __version__ = "1"
    cudnnGraphNotSupportedError = NotSupported
    diagonal_alignment = SimpleNamespace(TOP_LEFT="top left")
    data_type = SimpleNamespace(FLOAT="f4", HALF="f2", BFLOAT16="b2", BOOLEAN="b1", INT64="i8")
    heur_mode = SimpleNamespace(A="A", FALLBACK="FALLBACK")
    numerical_note = SimpleNamespace(NONDETERMINISTIC=1, TENSOR_CORE=2, DOWN_CONVERT_INPUTS=3)
    scalar_type = SimpleNamespace(RUNTIME_PARAM=0)

    def __init__(self, times: tuple[float, ...] = (3.0, 1.0, 2.0)) -> None:
        self.times, self.barred = times, frozenset[int]()
        self.declines = self.fails = self.damaged = False
        self.failing: dict[int, Exception] = {}  # by plan
        self.driver = 0  # what was built for another one does not run
        self.keeps_nan, self.hiding = True, frozenset[int]()  # plans that hide NaN
        self.clock = 0.0
        self.ran: list[int] = []
        self.packs: list[dict[int, int]] = []
        self.refused: list[Any] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []  # of operations, and what they are told

    def backend_version_string(self) -> str:
        return "9"

    def create_handle(self) -> Any:
        return SimpleNamespace()

    def set_stream(self, handle: Any, stream: int) -> None:
        handle.stream = stream

    def pygraph(self, **how: Any) -> FakeGraph:
        return FakeGraph(self)

    def run(self, plan: int, pack: dict[int, int]) -> None:
        if self.fails:
            raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED\nand more")
        if plan in self.failing:
            raise self.failing[plan]
        self.clock += self.times[plan]
        self.ran.append(plan)
        self.packs.append(pack)


class FakeGraph:
    """A graph, on which every operation can be called."""

    def __init__(self, module: Frontend) -> None:
        self.module, self.chosen = module, 0
        self.driver = module.driver
        self.outputs: dict[int, Any] = {}

    def tensor(self, **how: Any) -> Any:
        return SimpleNamespace(**how, set_data_type=lambda kind: None)

    def tensor_scalar(self, value: float, kind: Any) -> Any:
        return value

    def __getattr__(self, name: str) -> Any:
        def operation(*inputs: Any, **named: Any) -> Any:
            self.module.calls.append((name, named))
            results = [FakeResult() for _ in range(RESULTS.get(name, 1))]
            return results if name in RESULTS else results[0]

        return operation

    def validate(self) -> None: ...

    def build_operation_graph(self) -> None: ...

    def create_execution_plans(self, modes: list[str]) -> None:
        if self.module.declines:
            raise NotSupported("no engine\nmore words")

    def deselect_numeric_notes(self, notes: list[Any]) -> None:
        self.module.refused = notes

    def deselect_workspace_greater_than(self, limit: int) -> None: ...

    def check_support(self) -> None: ...

    def get_execution_plan_count(self) -> int:
        return len(self.module.times)

    def build_plan_at_index(self, index: int) -> None:
        if index in self.module.barred:
            raise KeyError("barred")  # in place of the frontend's own errors

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return 1000 * index

    def select_plan(self, index: int) -> None:
        self.chosen = index

    def build_plans(self) -> None: ...

    def get_workspace_size(self) -> int:
        return 1000 * self.chosen

    def serialize(self) -> bytes:
        return str(self.chosen).encode()

    def deserialize(self, handle: Any, data: bytes) -> None:
        if self.module.damaged:
            raise RuntimeError("damaged")
        self.chosen = int(data)

    def execute_plan_at_index(self, pack: Any, workspace: int, index: int, handle: Any) -> None:
        self.module.run(index, pack)

    def execute(self, pack: Any, workspace: int, handle: Any) -> None:
        if self.driver != self.module.driver:
            raise RuntimeError("CUDNN_STATUS_INTERNAL_ERROR")
        self.module.run(self.chosen, pack)


class FakeResult:
    """A tensor that an operation makes."""

    def _set(self, value: Any) -> FakeResult:
        return self

    set_output = set_data_type = set_dim = set_stride = set_uid = _set


class FakeRuntime(SimulatedRuntime):
    """A simulated GPU with events, whose time is the frontend's."""

    def __init__(self, module: Frontend) -> None:
        super().__init__()

        class Event:
            def record(self, stream: Any) -> None:
                self.at = module.clock

            def synchronize(self) -> None: ...

        def asnumpy(array: Any) -> Any:
            keeps = module.keeps_nan and module.ran[-1] not in module.hiding
            return np.full_like(array, 0xFF if keeps else 0)

        cuda = SimpleNamespace(Event=Event, get_elapsed_time=lambda a, b: b.at - a.at)
        self.xp: Any = SimpleNamespace(cuda=cuda, asnumpy=asnumpy)
