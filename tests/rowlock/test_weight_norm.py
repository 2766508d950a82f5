"""Weights of a direction and a length, and specs of what is fed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock import static
from tests.programs import own_programs

# What Paddle 1.8.5 computes in the second step: of each dim the two rows.
SECOND = {None: (2.13288, 8.249247), 1: (2.13288, 8.249247), 0: (2.1, 8.233333)}


@pytest.mark.parametrize("dim", [None, 0, 1])
def test_a_weight_is_trained_as_paddle_does(dim: int | None) -> None:
    half = fluid.initializer.Constant(0.5)
    with own_programs() as (main, startup):
        x = fluid.data("x", [None, 4])
        attr = fluid.WeightNormParamAttr(dim=dim, name="wn", initializer=half)
        y = fluid.layers.fc(x, 3, param_attr=attr)
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(y))
    norm = ["abs", "pow", "reduce_sum", "pow"]
    flat = ["reshape", *norm, "reshape"]
    apply = ["elementwise_div", *([] if dim is None else ["reshape2"]), "elementwise_mul"]
    types = [op.type for op in main.global_block().ops]
    expected = [*(norm if dim is None else flat), *apply, "mul"]
    assert types[: len(expected)] == expected
    lengths = {None: (1, 1), 0: (4, 1), 1: (1, 3)}[dim]
    shapes = {p.name: p.shape for p in main.all_parameters()}
    assert shapes == {"wn_g": lengths, "wn_v": (4, 3), "fc_0.b_0": (3,)}
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        feed = {"x": np.arange(8, dtype="float32").reshape(2, 4)}
        first, second = (exe.run(main, feed=feed, fetch_list=[y])[0] for _ in range(2))
    np.testing.assert_allclose(first, [[3] * 3, [11] * 3], rtol=1e-6)
    np.testing.assert_allclose(second, np.repeat([SECOND[dim]], 3, 0).T, rtol=1e-5)


def test_filters_have_lengths_along_a_middle_dimension() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        image = fluid.data("image", [1, 3, 2, 2])
        attr = static.WeightNormParamAttr(dim=1, name="wn")
        out = fluid.layers.conv2d(image, 2, 2, param_attr=attr, bias_attr=False)
        exe = fluid.Executor()
        with fluid.scope_guard(fluid.Scope()) as _:
            exe.run(fluid.default_startup_program())
            fed = np.random.default_rng(3).normal(size=(1, 3, 2, 2)).astype("float32")
            image, g, v = exe.run(feed={"image": fed}, fetch_list=[out, "wn_g", "wn_v"])
    assert g.shape == (1, 3, 1, 1)
    np.testing.assert_allclose(g.ravel(), np.sqrt((v**2).sum((0, 2, 3))), rtol=1e-5)
    np.testing.assert_allclose(image.ravel(), np.einsum("nchw,fchw->f", fed, v), rtol=1e-4)


def test_specs_of_what_is_fed() -> None:
    spec = static.InputSpec([None, 4], "int64", "ids")
    assert (spec.shape, spec.dtype.name, spec.name) == ((-1, 4), "INT64", "ids")
    assert spec == static.InputSpec([-1, 4], "int64", "ids") and spec != static.InputSpec([4])
    assert spec.batch(8).shape == (8, -1, 4) and spec.unbatch().shape == (-1, 4)
    assert static.InputSpec.from_numpy(np.zeros((2, 3)), "a").dtype.name == "FP64"
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = static.data("x", [None, 4])
    assert static.InputSpec.from_tensor(x).name == "x"


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: static.InputSpec(4), TypeError),
        (lambda: static.InputSpec(["a"]), TypeError),
        (lambda: static.InputSpec([-2]), ValueError),
        (lambda: static.InputSpec([1], "text"), ValueError),
        (lambda: static.InputSpec([1], name=3), TypeError),
        (lambda: static.InputSpec([1]).batch([1, 2]), ValueError),
        (lambda: static.InputSpec([]).unbatch(), ValueError),
        (lambda: static.InputSpec.from_tensor(np.zeros(3)), TypeError),
        (lambda: fluid.WeightNormParamAttr(dim="0"), TypeError),
    ],
)
def test_what_is_no_spec_is_refused(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make()
