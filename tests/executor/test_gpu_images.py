"""A residual net and a transformer learn on a GPU what they learn on a CPU, most of it by cuDNN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.executor.cuda.dnn import BatchNormGrad
from rowlock.executor.device.gpus import local_gpus
from rowlock.executor.simulated.reference_dnn import ReferenceDnn
from tests.ops.gpu import needs_compiler
from tests.programs import on_places, own_programs

pytestmark = [needs_compiler, pytest.mark.usefixtures("one_gpu", "threads")]


def normed(x: Any, filters: int, act: str | None = None) -> Any:
    h = fluid.layers.conv2d(x, filters, 3, padding=1, bias_attr=False)
    return fluid.layers.batch_norm(h, act=act)


def residual(kind: str) -> Any:
    """Add a residual net to the default program; returns the loss."""
    L = fluid.layers
    x, label = L.data("x", [8, 8, 8]), L.data("label", [1], dtype="int64")
    h = normed(L.cast(x, kind), 8, "relu")
    h = L.relu(L.elementwise_add(h, normed(h, 8)))
    h = normed(L.pool2d(h, pool_size=2, pool_stride=2), 16, "relu")
    h = L.cast(L.pool2d(h, global_pooling=True, pool_type="avg"), "float32")
    return L.mean(L.softmax_with_cross_entropy(L.fc(h, 4), label))


def transformer(kind: str, dropout: str = "") -> Any:
    """A transformer whose attention alone is of low precision; ``dropout``: how its weights are dropped."""
    L = fluid.layers
    words, label = L.data("x", [8, 32]), L.data("label", [1], dtype="int64")
    packed = L.reshape(L.fc(words, 96, num_flatten_dims=2), [0, 8, 3, 2, 16])
    parts = L.split(L.transpose(L.cast(packed, kind), [2, 0, 3, 1, 4]), 3, 0)
    q, k, v = (L.squeeze(part, [0]) for part in parts)
    weights = L.softmax(L.matmul(q, k, transpose_y=True, alpha=0.25))
    if dropout:
        weights = L.dropout(weights, 0.5, dropout_implementation=dropout)
    heads = L.reshape(L.transpose(L.matmul(weights, v), [0, 2, 1, 3]), [0, 256])
    return L.mean(L.softmax_with_cross_entropy(L.fc(L.cast(heads, "float32"), 4), label))


def learned(
    build: Any, place: Any, shape: tuple[int, ...], **switches: Any
) -> tuple[list[float], str]:
    """Train for a few steps; return the losses, and what the compiler says."""
    with own_programs(7) as (main, start):
        loss = build()
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    draw, losses = np.random.RandomState(0), []
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(place)
        exe.run(start)
        program = on_places(main, [place], loss, build=switches)
        for _ in range(4):
            label = draw.randint(0, 4, (8, 1)).astype("int64")
            fed = {"x": draw.randn(8, *shape).astype("f4"), "label": label}
            losses.append(float(np.mean(exe.run(program, feed=fed, fetch_list=[loss])[0])))
        return losses, str(program.explain())


NEAR = {"float32": 1e-5, "bfloat16": 1e-2}


@pytest.mark.parametrize("kind", ["bfloat16", pytest.param("float32", marks=pytest.mark.slow)])
def test_a_residual_net_learns_there_as_on_a_cpu(kind: str) -> None:
    here, _ = learned(lambda: residual(kind), fluid.CPUPlace(), (8, 8, 8))
    there, report = learned(lambda: residual(kind), fluid.CUDAPlace(0), (8, 8, 8))
    np.testing.assert_allclose(there, here, rtol=NEAR[kind])
    # three convolutions, gradients of three filters and two images; norms too, where channels lie last
    assert ("8 on cudnn" if kind == "float32" else "14 on cudnn") in report
    assert ("channels last" in report) == (kind != "float32")
    assert "split at" not in report  # the step is one graph


def test_attention_in_low_precision_is_one_call_of_cudnn() -> None:
    here, _ = learned(lambda: transformer("bfloat16"), fluid.CPUPlace(), (8, 32))
    there, report = learned(
        lambda: transformer("bfloat16"), fluid.CUDAPlace(0), (8, 32), fused_attention=True
    )
    np.testing.assert_allclose(there, here, rtol=NEAR["bfloat16"])
    assert "2 on cudnn" in report
    assert "split at" not in report


def test_cudnn_drops_weights_of_attention_where_it_is_asked_to() -> None:
    asked = {"fused_attention": True, "cudnn_attention_dropout": True}

    def losses(place: Any, dropout: str, **switches: Any) -> tuple[list[float], str]:
        return learned(lambda: transformer("bfloat16", dropout), place, (8, 32), **switches)

    here, report = losses(fluid.CPUPlace(), "upscale_in_train", **asked)
    assert "are not dropped by cuDNN: there is no cuDNN on all places" in report
    there, report = losses(fluid.CUDAPlace(0), "upscale_in_train", fused_attention=True)
    assert "on cudnn" not in report
    np.testing.assert_allclose(there, here, rtol=NEAR["bfloat16"])
    own, report = losses(fluid.CUDAPlace(0), "upscale_in_train", **asked)
    assert "1 of their dropouts by cuDNN" in report and "2 on cudnn" in report
    assert "split at" not in report  # the numbers of a step are drawn inside its graph
    assert losses(fluid.CUDAPlace(0), "upscale_in_train", **asked)[0] == own
    assert not np.allclose(own, here, rtol=NEAR["bfloat16"])
    _, report = losses(fluid.CUDAPlace(0), "downgrade_in_infer", **asked)
    assert "dropped by cuDNN: cuDNN scales what is left in training" in report


def test_no_gradient_of_a_norm_lies_where_cudnn_reads_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Batch norm's gradient may be made in place by our kernels; the library promises nothing of that kind."""
    bound: list[dict[str, Any]] = []
    bind = ReferenceDnn.bind

    def noted(self: Any, graph: Any, arrays: Any, workspace: Any) -> Any:
        if isinstance(graph, BatchNormGrad):
            bound.append(dict(arrays))
        return bind(self, graph, arrays, workspace)

    monkeypatch.setattr(ReferenceDnn, "bind", noted)
    learned(lambda: residual("bfloat16"), fluid.CUDAPlace(0), (8, 8, 8))
    if local_gpus() and not bound:
        pytest.skip("a real GPU")
    assert len(bound) >= 3
    for arrays in bound:
        for name in ("x", "d_y"):
            assert not np.shares_memory(arrays["d_x"], arrays[name]), name
