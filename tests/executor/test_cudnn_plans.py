"""How one of cuDNN's plans is chosen, kept, and run: on a stand-in for the library."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowlock.executor.cuda import cudnn
from rowlock.executor.cuda.cudnn_graphs import describe_graph
from rowlock.executor.cuda.dnn import (
    Attention,
    AttentionGrad,
    BatchNorm,
    BatchNormGrad,
    Convolution,
    Graph,
    Tensor,
)
from rowlock.strategies.errors import ExecutionError
from tests.executor.fake_cudnn import FakeGraph, FakeRuntime, Frontend
from tests.ops.gpu import needs_compiler

pytestmark = needs_compiler
IMAGE = Tensor((2, 8, 4, 4), (128, 1, 32, 8), "bfloat16")
FILTERS = Tensor((8, 8, 1, 1), (8, 1, 1, 1), "bfloat16")
ONCE = (1, 1)
CONVOLUTION = Convolution(IMAGE, FILTERS, IMAGE, "y", ONCE, ONCE, (0, 0), (0, 0))


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Frontend]:
    """The frontend, with nothing kept on disk."""
    frontend = Frontend()
    monkeypatch.setitem(sys.modules, "cudnn", frontend)
    monkeypatch.setenv("ROWLOCK_CACHE_DIR", str(tmp_path))
    cudnn.version.cache_clear()
    yield frontend
    cudnn.version.cache_clear()


def bound(dnn: cudnn.Cudnn, graph: Graph) -> Any:
    arrays = {name: np.zeros(operand.nbytes, np.uint8) for name, operand in graph.operands.items()}
    return dnn.bind(graph, arrays, np.zeros(dnn.workspace(graph) or 0, np.uint8))


def test_the_fastest_plan_is_kept(module: Frontend) -> None:
    runtime = FakeRuntime(module)
    dnn = cudnn.Cudnn(runtime)
    assert dnn.workspace(CONVOLUTION) == 1024  # on a boundary
    assert set(module.ran) == {0, 1, 2}
    module.ran.clear()
    bound(dnn, CONVOLUTION)()
    assert module.ran == [1]
    other = cudnn.Cudnn(runtime)  # as in the next process
    module.ran.clear()
    call = bound(other, CONVOLUTION)
    assert not module.ran
    assert call.captured
    call()
    assert module.ran == [1]


def test_what_cannot_be_loaded_any_more_is_chosen_again(module: Frontend) -> None:
    runtime = FakeRuntime(module)
    cudnn.Cudnn(runtime).workspace(CONVOLUTION)
    module.ran.clear()
    module.damaged = True
    dnn = cudnn.Cudnn(runtime)
    assert dnn.workspace(CONVOLUTION) == 1024
    assert set(module.ran) == {0, 1, 2}


def test_plans_that_cannot_be_built_are_passed_over(module: Frontend) -> None:
    module.barred = frozenset({1})
    dnn = cudnn.Cudnn(FakeRuntime(module))
    bound(dnn, CONVOLUTION)()
    assert module.ran[-1] == 2


def test_what_is_declined_is_told_once(module: Frontend, caplog: pytest.LogCaptureFixture) -> None:
    module.declines = True
    dnn = cudnn.Cudnn(FakeRuntime(module))
    assert dnn.workspace(CONVOLUTION) is None
    assert dnn.workspace(CONVOLUTION) is None
    (said,) = (record.getMessage() for record in caplog.records)
    assert "convolution of bfloat16 [2, 8, 4, 4]" in said
    assert said.endswith("to other kernels: no engine")
    with pytest.raises(ExecutionError, match="cannot compute convolution"):
        dnn.bind(CONVOLUTION, {}, None)


def test_an_error_names_the_graph(module: Frontend) -> None:
    call = bound(cudnn.Cudnn(FakeRuntime(module)), CONVOLUTION)
    module.fails = True
    with pytest.raises(ExecutionError, match=r"convolution of .*CUDNN_STATUS_EXECUTION_FAILED$"):
        call()


def test_only_exact_convolutions_keep_off_tensor_cores(module: Frontend) -> None:
    dnn, notes = cudnn.Cudnn(FakeRuntime(module)), Frontend.numerical_note
    dnn.workspace(CONVOLUTION)
    assert module.refused == [notes.NONDETERMINISTIC]
    single = [t._replace(dtype="float32") for t in (IMAGE, FILTERS, IMAGE)]
    for exact in (True, False):
        dnn.workspace(Convolution(*single, "y", ONCE, ONCE, (0, 0), (0, 0), exact))
        assert (notes.TENSOR_CORE in module.refused) == exact


def operations(module: Frontend, graph: Graph) -> dict[str, dict[str, Any]]:
    """Return the operations of which cuDNN is told for a graph, and what they are told by name."""
    module.calls.clear()
    describe_graph(graph)
    return dict(module.calls)


HEADS = Tensor((2, 3, 16, 8), (384, 128, 8, 1), "bfloat16")
MASK = Tensor((1, 1, 16, 16), (256, 256, 16, 1), "bfloat16")
BAND = {"diagonal_alignment": "top left", "diagonal_band_right_bound": 0}


@pytest.mark.parametrize("dropout", [0.0, 0.25])
@pytest.mark.parametrize("causal", [True, False])
def test_a_causal_mask_is_a_band_and_any_other_is_added(
    module: Frontend, causal: bool, dropout: float
) -> None:
    attention = Attention(HEADS, HEADS, HEADS, MASK, HEADS, 0.5, causal, dropout)
    (forward,) = operations(module, attention).values()
    (backward,) = operations(module, AttentionGrad(attention, HEADS, HEADS, HEADS, HEADS)).values()
    for options in (forward, backward):
        assert {name: options[name] for name in BAND if name in options} == (BAND if causal else {})
        assert ("bias" in options) == (not causal) and options["attn_scale"] == 0.5
        assert options.get("dropout", (0.0,))[0] == dropout
    assert backward["use_deterministic_algorithm"] and "dBias" not in backward
    sums = AttentionGrad(attention, HEADS, HEADS, HEADS, HEADS, MASK)
    assert "dBias" in operations(module, sums)["sdpa_backward"]


def test_what_a_residual_block_computes_backwards_is_one_graph(module: Frontend) -> None:
    images = Convolution(IMAGE, FILTERS, IMAGE, "x", ONCE, ONCE, (0, 0), (0, 0), addend=IMAGE)
    assert [*operations(module, images)] == ["conv_dgrad", "add"]
    rectified = operations(module, BatchNormGrad(IMAGE, relu=True))
    assert [*rectified] == ["batchnorm_inference", "relu_backward", "batchnorm_backward"]
    assert [*operations(module, BatchNormGrad(IMAGE, masked=True, forks=True))] == [
        "mul",
        "batchnorm_backward",
    ]
    norm = BatchNorm(IMAGE, 1e-5, adds=True, relu=True, masks=True)
    assert [*operations(module, norm)] == ["batchnorm", "add", "relu", "cmp_gt"]


def test_operands_that_nobody_asked_for_lie_behind_the_workspace(module: Frontend) -> None:
    graph = BatchNorm(IMAGE, 1e-5)
    dnn = cudnn.Cudnn(FakeRuntime(module))
    needs = dnn.workspace(graph)
    assert needs == 1024 + 4 * 256
    call = bound(dnn, graph)
    call()
    pack, start = module.packs[-1], call._workspace
    assert sorted(pack) == list(range(1, len(graph.operands) + 5))
    further = [pack[i] - start for i in range(len(graph.operands) + 1, len(pack) + 1)]
    assert further == [1024, 1280, 1536, 1792]


@pytest.mark.parametrize("keeps", [True, False])
def test_a_relu_that_hides_what_is_not_a_number_is_declined(module: Frontend, keeps: bool) -> None:
    module.keeps_nan = keeps
    dnn = cudnn.Cudnn(FakeRuntime(module))
    assert (dnn.workspace(BatchNorm(IMAGE, 1e-5, relu=True)) is not None) == keeps
    assert dnn.workspace(BatchNorm(IMAGE, 1e-5)) is not None


def test_without_room_to_try_plans_the_first_is_taken(
    module: Frontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = FakeRuntime(module)

    def full(nbytes: int) -> Any:
        raise MemoryError

    monkeypatch.setattr(runtime, "empty", full)
    dnn = cudnn.Cudnn(runtime)
    bound(dnn, CONVOLUTION)()
    assert module.ran == [0]


def test_a_plan_that_fails_however_is_told_and_the_next_is_tried(
    module: Frontend, caplog: pytest.LogCaptureFixture
) -> None:
    module.failing = {1: TypeError("execute(): incompatible function arguments"), 2: OSError("no")}
    with caplog.at_level("INFO", "rowlock"):
        bound(cudnn.Cudnn(FakeRuntime(module)), CONVOLUTION)()
    assert module.ran[-1] == 0
    assert [r.getMessage().split(": ", 1)[1] for r in caplog.records] == [
        "execute(): incompatible function arguments",
        "no",
    ]


def test_a_relu_is_left_to_the_next_plan_that_keeps_nan(module: Frontend) -> None:
    module.hiding = frozenset({1})
    bound(cudnn.Cudnn(FakeRuntime(module)), BatchNorm(IMAGE, 1e-5, relu=True))()
    assert module.ran[-1] == 0, "of the two that are tried"


def test_a_plan_that_fails_on_nan_alone_is_told_and_the_next_is_tried(
    module: Frontend, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = list[int]()
    run = Frontend.run

    def fails_later(self: Frontend, plan: int, pack: dict[int, int]) -> None:
        runs.append(plan)
        if runs.count(1) > 6:  # once, five times, and on what is not a number
            self.failing = {1: TypeError("not this one")}
        run(self, plan, pack)

    monkeypatch.setattr(Frontend, "run", fails_later)
    with caplog.at_level("INFO", "rowlock"):
        bound(cudnn.Cudnn(FakeRuntime(module)), BatchNorm(IMAGE, 1e-5, relu=True))()
    assert module.ran[-1] == 0
    assert [record.getMessage() for record in caplog.records] == [
        "a candidate fails on NaN: not this one"
    ]


def test_a_plan_that_cannot_be_stored_runs_all_the_same(
    module: Frontend, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: FakeGraph) -> bytes:
        raise TypeError("serialize(): no")

    monkeypatch.setattr(FakeGraph, "serialize", refuse)
    with caplog.at_level("INFO", "rowlock"):
        call = bound(cudnn.Cudnn(FakeRuntime(module)), CONVOLUTION)
    call()
    assert module.ran[-1] == 1 and "cannot single out a plan" in caplog.text
    module.failing = {1: RuntimeError("no")}
    module.ran.clear()
    with pytest.raises(ExecutionError, match=r"no$"):
        call()
    assert not module.ran, "it was chosen now, so no other is timed"


@pytest.mark.parametrize("error", [ImportError, OSError, RuntimeError])
def test_a_frontend_that_does_not_load_is_none(
    module: Frontend, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    assert cudnn.version() == "9 (frontend 1)"
    cudnn.version.cache_clear()

    def fails(self: Frontend) -> str:
        raise error("libcudnn.so.9: cannot open shared object file")

    monkeypatch.setattr(Frontend, "backend_version_string", fails)
    assert cudnn.version() == ""


def test_a_graph_that_the_frontend_stumbles_over_is_left_to_others(
    module: Frontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Frontend.numerical_note, "NONDETERMINISTIC")
    assert cudnn.Cudnn(FakeRuntime(module)).workspace(CONVOLUTION) is None


def test_a_stored_plan_that_fails_once_is_chosen_anew(
    module: Frontend, caplog: pytest.LogCaptureFixture
) -> None:
    dnn = cudnn.Cudnn(FakeRuntime(module))
    calls = [bound(dnn, CONVOLUTION) for _ in range(2)]
    module.driver += 1
    module.times = (0.5, 1.0, 2.0)
    for call in calls:
        call()
        call()
    assert module.ran[-4:] == [0] * 4
    assert len(caplog.records) == 1 and "INTERNAL_ERROR" in caplog.text, "once for both"
    module.ran.clear()
    bound(cudnn.Cudnn(FakeRuntime(module)), CONVOLUTION)()
    assert module.ran == [0], "the new one is stored"


def test_a_new_plan_must_do_with_the_workspace_that_is_bound(module: Frontend) -> None:
    call = bound(cudnn.Cudnn(FakeRuntime(module)), CONVOLUTION)
    module.driver += 1
    module.times = (3.0, 2.0, 1.0)
    with pytest.raises(ExecutionError, match="INTERNAL_ERROR"):
        call()
