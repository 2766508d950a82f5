"""Programs that train with oneDNN, beside the same with NumPy alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.kernels.onednn import primitive
from rowlock.executor.kernels.onednn.library import library
from rowlock.graph.compile import compile_program
from rowlock.graph.passes.target import Target
from rowlock.strategies.errors import StrategyError, Unsupported
from tests.programs import on_places, own_programs

pytestmark = pytest.mark.skipif(library() is None, reason="oneDNN is not installed")

dnnl = library()


def trained(steps: int = 4, **switches: Any) -> tuple[list[Any], str]:
    """Return the losses of an image classifier on two places, and the compiler's report."""
    with own_programs(5) as (main, startup):
        x = fluid.layers.data("x", [3, 8, 8])
        label = fluid.layers.data("label", [1], dtype="int64")
        h = fluid.layers.conv2d(x, 8, 3, padding=1, bias_attr=False)
        h = fluid.layers.relu(fluid.layers.batch_norm(h))
        h = fluid.layers.conv2d(h, 8, 3, padding=1, groups=8, act="relu") + h
        h = fluid.layers.pool2d(h, pool_size=2, pool_stride=2)
        h = fluid.layers.layer_norm(fluid.layers.fc(h, 16, act="relu"))
        loss = fluid.layers.mean(
            fluid.layers.cross_entropy(fluid.layers.softmax(fluid.layers.fc(h, 4)), label)
        )
        fluid.optimizer.Momentum(0.05, 0.9).minimize(loss)
    rng = np.random.default_rng(3)
    build = fluid.BuildStrategy(**switches)
    exe = fluid.Executor(fluid.CPUPlace())
    with rowlock.cluster(launcher="threads"), fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        program = on_places(main, 2, loss, build=build)
        losses = []
        for _ in range(steps):
            feed = {
                "x": rng.standard_normal((8, 3, 8, 8)).astype("float32"),
                "label": rng.integers(0, 4, (8, 1)),
            }
            losses.append(exe.run(program, feed=feed, fetch_list=[loss])[0])
        return losses, str(program.explain())


def test_training_agrees_with_numpy() -> None:
    losses, report = trained()
    alone, plain = trained(onednn_enabled_op_types={"transfer_layout"})
    np.testing.assert_allclose(losses, alone, rtol=2e-5, atol=2e-6)
    assert " on onednn" in report and " on onednn" not in plain


@pytest.mark.skipif(not (dnnl and dnnl.rounds), reason="no products in bfloat16 here")
def test_products_are_exact_unless_bfloat16_is_asked_for() -> None:
    losses, _ = trained()
    exact, _ = trained(cpu_math="float32")
    rounded, _ = trained(cpu_math="bfloat16")
    np.testing.assert_array_equal(losses, exact)
    np.testing.assert_allclose(losses, rounded, rtol=0.03)
    assert not np.array_equal(losses, rounded)


def test_another_precision_is_refused() -> None:
    with pytest.raises(StrategyError, match="cpu_math"):
        fluid.BuildStrategy().cpu_math = "float8"


@pytest.mark.skipif(not (dnnl and dnnl.rounds), reason="no products in bfloat16 here")
def test_products_that_would_be_exact_are_refused_if_bfloat16_is_asked_for() -> None:
    with pytest.raises(
        Unsupported, match=r"conv2d \(built at .*\) would be computed in float32 by"
    ):
        trained(cpu_math="bfloat16", onednn_enabled_op_types={"mul"})


def test_compiled_loops_go_before_onednn_where_they_are_faster() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        out = fluid.layers.softmax(fluid.layers.sigmoid(fluid.data("x", [None, 8])))
        across = fluid.layers.softmax(out, axis=0)
    for libraries, kernels in (
        (("onednn", "llvm"), {"sigmoid": "llvm", "softmax": "llvm"}),
        (("onednn",), {"sigmoid": "onednn", "softmax": "numpy"}),
    ):
        able = capabilities(frozenset(libraries))
        program = compile_program(main, ("x",), (across.name,), Target(), able).program
        assert {node.op: node.kernel for node in program.nodes[:2]} == kernels
        assert program.nodes[2].kernel == kernels["softmax"]  # along any axis


def _classifier() -> tuple[Any, Any, Any]:
    """Return a convolution's test program, its training program, and the result of the former."""
    with own_programs(5) as (main, startup):
        h = fluid.layers.conv2d(fluid.layers.data("x", [32, 6, 6]), 32, 3, param_attr="filter")
        out = fluid.layers.batch_norm(h)
        test = main.clone(for_test=True)
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(out * out * h))
    fluid.Executor(fluid.CPUPlace()).run(startup)
    return test, main, out


@pytest.mark.parametrize("places", [1, 2])
def test_filters_are_packed_again_after_a_write_alone(
    places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody writes is packed once; a value that is set, and a training step, are seen."""
    copies: list[int] = []
    plain = primitive._copy

    def counted(*arguments: Any) -> Any:
        copy = plain(*arguments)
        return lambda: (copies.append(1), copy())[1]

    monkeypatch.setattr(primitive, "_copy", counted)
    monkeypatch.setenv("CPU_NUM", str(places))
    with fluid.scope_guard(fluid.Scope()), rowlock.cluster(launcher="threads"):
        test, main, out = _classifier()
        exe = fluid.Executor(fluid.CPUPlace())
        x = np.random.default_rng(0).standard_normal((places, 32, 6, 6)).astype("f4")
        trains, tests = main, test
        if places > 1:
            trains = fluid.CompiledProgram(main).with_data_parallel(loss_name="mean_0.tmp_0")
            tests = fluid.CompiledProgram(test).with_data_parallel(share_vars_from=trains)
            exe.run(trains, feed={"x": x})

        def result() -> Any:
            return exe.run(tests, feed={"x": x}, fetch_list=[out])[0]

        first = result()
        packed = len(copies)
        assert packed
        np.testing.assert_array_equal(result(), first)
        per_step = len(copies) - packed
        tensor = fluid.global_scope().find_var("filter").get_tensor()
        tensor.set(tensor.numpy() * 2)
        before = len(copies)
        doubled = result()
        assert len(copies) - before > per_step
        assert not np.allclose(doubled, first)
        exe.run(trains, feed={"x": x})
        before = len(copies)
        assert not np.array_equal(result(), doubled)
        assert len(copies) - before > per_step
