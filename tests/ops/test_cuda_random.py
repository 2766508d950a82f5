"""Numbers that a GPU draws are those that the host draws."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rowlock.executor.device.device import Device
from rowlock.executor.kernels.array.part_dropout import Dropout
from rowlock.executor.kernels.cuda.random import CudaDropout
from rowlock.executor.kernels.registry import bind
from rowlock.graph.ops.attention import NO_DROPOUT
from rowlock.graph.ops.registry import OPS
from tests.ops.gpu import assert_compile_for_a_gpu, gpu, needs_compiler

pytestmark = needs_compiler
STEP, ROW = 5, 3


def on_host() -> Device:
    dev = Device(seed=7)
    dev.output, dev.clock.step, dev.clock.row = "h", STEP, ROW
    return dev


def drawn(
    op_type: str, inputs: dict[str, Any], outputs: dict[str, Any], host: bool = False, **attrs: Any
) -> dict[str, Any]:
    """Return what an op writes at a step and row that are told after it was bound."""
    dev = on_host() if host else gpu()
    dev.output = "h"
    reads, writes = ({s: [dev.xp.asarray(a.copy(order="K"))] for s, a in arrays.items()}
                   for arrays in (inputs, outputs))  # fmt: skip
    settings = {**OPS[op_type].attrs, **attrs}
    steps = bind(op_type, reads, writes, settings, dev, "" if host else "cuda")
    if host:
        for step in steps:
            step()
    else:
        run(dev, steps)
    return {s: a[0] if isinstance(a[0], np.ndarray) else a[0].get() for s, a in writes.items()}


def run(dev: Device, steps: list[Any]) -> None:
    assert dev.runtime is not None
    dev.memory.tick(STEP, ROW)  # type: ignore[union-attr]
    dev.runtime.execute(steps)
    dev.runtime.synchronize()
    assert_compile_for_a_gpu({step.kernel.key: step.kernel for step in steps})


@pytest.mark.parametrize("shape", [(40, 50), (3, 7), (1,)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_numbers_have_the_bits_of_the_host(shape: tuple[int, ...], dtype: str) -> None:
    how: dict[str, Any] = {"shape": list(shape), "min": -2.0, "max": 3.1}
    out = {"Out": np.empty(shape, dtype)}
    ours = drawn("uniform_random", {}, out, **how)["Out"]
    np.testing.assert_array_equal(ours, drawn("uniform_random", {}, out, host=True, **how)["Out"])
    other = drawn("uniform_random", {}, out, seed=9, **how)["Out"]
    assert (other != ours).any()


@pytest.mark.parametrize("name", ["gaussian_random", "truncated_gaussian_random"])
def test_normal_numbers_are_those_of_the_host(name: str) -> None:
    for shape, dtype in (((90, 50), "float32"), ((7,), "float64")):
        how: dict[str, Any] = {"shape": list(shape), "mean": 1.0, "std": 2.0}
        out = {"Out": np.empty(shape, dtype)}
        ours = drawn(name, {}, out, **how)["Out"]
        expected = drawn(name, {}, out, host=True, **how)["Out"]
        np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_integers_are_those_of_the_host(dtype: str) -> None:
    how: dict[str, Any] = {"shape": [30, 7], "low": -(2**31), "high": 2**31 - 1}
    out = {"Out": np.empty((30, 7), dtype)}
    ours, expected = (drawn("randint", {}, out, host, **how) for host in (False, True))
    np.testing.assert_array_equal(ours["Out"], expected["Out"])


def test_choices_are_those_of_the_host() -> None:
    x = np.random.default_rng(0).random((9, 31)).astype("f4")
    ours, expected = (
        drawn("bernoulli", {"X": x}, {"Out": x}, host)["Out"] for host in (False, True)
    )
    np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("name", ["uniform", "gaussian"])
@pytest.mark.parametrize("place", [0, 1])
def test_numbers_for_samples_are_those_of_the_host(name: str, place: int) -> None:
    shape = (6, 5) if place == 0 else (5, 6)
    like, out = {"Input": np.empty((6, 2), "f4")}, {"Out": np.empty(shape, "f4")}
    name = f"{name}_random_batch_size_like"
    ours, expected = (
        drawn(name, like, out, host, shape=list(shape), output_dim_idx=place)["Out"]
        for host in (False, True)
    )
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-6)


KINDS = ["downgrade_in_infer", "upscale_in_train"]


@pytest.mark.parametrize("kind", KINDS)
# 3 rows are whole blocks, or not
@pytest.mark.parametrize("shape", [(16, 40), (5, 7), (6, 3, 5, 4)])
def test_masks_have_the_bits_of_the_host(shape: tuple[int, ...], kind: str) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype("f4")
    x.flat[0] = np.inf
    how: dict[str, Any] = {"dropout_prob": 0.3, "dropout_implementation": kind}
    out = {"Out": np.empty_like(x), "Mask": np.empty(shape, "u1")}
    ours, expected = (drawn("dropout", {"X": x}, out, host, **how) for host in (False, True))
    for slot in out:
        np.testing.assert_array_equal(ours[slot], expected[slot], err_msg=slot)
    assert 0 < ours["Mask"].mean() < 1
    (alone,) = drawn("dropout", {"X": x}, {"Out": out["Out"]}, **how).values()
    np.testing.assert_array_equal(alone, ours["Out"])
    x.flat[0] = 1.0
    back = {"Mask": ours["Mask"], "Out@GRAD": x}
    slopes = [drawn("dropout_grad", back, {"X@GRAD": x}, host, **how) for host in (False, True)]
    np.testing.assert_allclose(slopes[0]["X@GRAD"], slopes[1]["X@GRAD"], rtol=1e-6)


def test_images_with_channels_last_are_dropped_by_their_own_numbers() -> None:
    x = np.random.default_rng(0).standard_normal((4, 3, 5, 6)).astype("f4")
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    out = {"Out": np.empty_like(last), "Mask": np.empty_like(last, "u1")}
    ours = drawn("dropout", {"X": last}, out)
    expected = drawn(
        "dropout", {"X": x}, {"Out": np.empty_like(x), "Mask": np.empty(x.shape, "u1")}
    )
    for slot in out:
        np.testing.assert_array_equal(ours[slot], expected[slot])


@pytest.mark.parametrize(("p", "is_test"), [(0.0, False), (1.0, False), (0.3, True)])
def test_edges_of_dropout_are_those_of_the_host(p: float, is_test: bool) -> None:
    x = np.random.default_rng(0).standard_normal((4, 6)).astype("f4")
    for kind in KINDS:
        how: dict[str, Any] = {
            "dropout_prob": p,
            "is_test": is_test,
            "dropout_implementation": kind,
        }
        out = {"Out": np.empty_like(x), "Mask": np.empty(x.shape, "u1")}
        ours, expected = (drawn("dropout", {"X": x}, out, host, **how) for host in (False, True))
        for slot in out:
            np.testing.assert_array_equal(ours[slot], expected[slot])
        back = {"Mask": ours["Mask"], "Out@GRAD": x}
        slopes = [drawn("dropout_grad", back, {"X@GRAD": x}, host, **how) for host in (False, True)]
        np.testing.assert_allclose(slopes[0]["X@GRAD"], slopes[1]["X@GRAD"], rtol=1e-6)


def test_a_fixed_seed_draws_the_same_in_every_step() -> None:
    x = np.ones((16, 40), "f4")
    how: dict[str, Any] = {"fix_seed": True, "seed": 11}
    ours, expected = (drawn("dropout", {"X": x}, {"Out": x}, host, **how) for host in (False, True))
    np.testing.assert_array_equal(ours["Out"], expected["Out"])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_low_precision_is_scaled_in_float32(dtype: Any) -> None:
    x = np.random.default_rng(0).standard_normal((8, 40)).astype(dtype)
    how: dict[str, Any] = {"dropout_implementation": KINDS[1], "dropout_prob": 0.3}
    out = {"Out": np.empty_like(x), "Mask": np.empty(x.shape, "u1")}
    ours = drawn("dropout", {"X": x}, out, **how)
    scaled = ours["Mask"] * (x.astype("f4") * np.float32(1 / 0.7))
    np.testing.assert_array_equal(ours["Out"].astype("f4"), scaled.astype(dtype).astype("f4"))


def test_what_a_fused_op_drops_is_what_a_dropout_op_would() -> None:
    attrs = {**NO_DROPOUT, "dropout_prob": 0.3, "is_test": False, "name": "h"}
    dev, host = gpu(), on_host()
    x = np.random.default_rng(0).standard_normal((4, 6)).astype("f4")
    spaces = [np.empty(x.shape, bool), np.empty(x.shape, bool)]
    arrays = [x.copy(), x.copy()]
    space, array = dev.xp.asarray(spaces[0]), dev.xp.asarray(arrays[0])
    ours, theirs = CudaDropout(dev, 6, attrs), Dropout(host, 6, attrs)
    run(dev, [*ours.mark(12, space), *ours.zero(array, space)])
    for step in [*theirs.mark(12, spaces[1]), *theirs.zero(arrays[1], spaces[1])]:
        step()
    for one, other in ((space, spaces[1]), (array, arrays[1])):
        np.testing.assert_array_equal(one if isinstance(one, np.ndarray) else one.get(), other)
    assert CudaDropout(dev, 6, NO_DROPOUT).mark(0, space) == []
