"""Programs on a GPU place, from the startup program on: the large models of benchmarks, at tiny sizes."""

from __future__ import annotations

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from benchmarks import large_models
from benchmarks.sizes import SIZES, TINY, feed
from rowlock.executor.device.place import Place
from tests.ops.gpu import needs_compiler
from tests.programs import on_places

pytestmark = [needs_compiler, pytest.mark.usefixtures("one_gpu")]


def losses(name: str, precision: str, place: Place) -> list[float]:
    """Return the losses of four steps, with the switches that benchmarks set."""
    model = large_models.build(name, TINY[name], precision)
    strategy = fluid.BuildStrategy(**large_models.SWITCHES[name])
    exe, scope = fluid.Executor(place), fluid.Scope()
    with rowlock.cluster(launcher="threads"), fluid.scope_guard(scope):
        exe.run(model.startup)
        if precision == "bfloat16":
            model.optimizer.amp_init(place)  # reads what the startup program made there
        train = on_places(model.main, [place], model.loss, build=strategy)
        fed = [feed(name, TINY[name], step % 2) for step in range(4)]
        return [float(np.asarray(exe.run(train, f, [model.loss])[0]).item()) for f in fed]


@pytest.mark.parametrize("name", ["gpt2", "resnet50"])
def test_mixed_precision_begins_on_the_gpu(name: str) -> None:
    ours = losses(name, "bfloat16", fluid.CUDAPlace(0))
    np.testing.assert_allclose(ours, losses(name, "float32", fluid.CPUPlace()), rtol=0.02)


def test_a_step_of_gpt2_is_the_same_on_both_kinds_of_place() -> None:
    ours = losses("gpt2", "float32", fluid.CUDAPlace(0))
    np.testing.assert_allclose(ours, losses("gpt2", "float32", fluid.CPUPlace()), rtol=1e-4)


def test_operations_are_those_that_are_known() -> None:
    images, text = SIZES["resnet50"], SIZES["gpt2"]
    assert images.operations() / images.rows == pytest.approx(24.5e9, rel=0.01)
    assert text.parameters() == pytest.approx(124.4e6, rel=0.01)
    assert text.operations() / (text.rows * text.length) == pytest.approx(857e6, rel=0.01)
