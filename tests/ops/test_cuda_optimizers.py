"""Optimizer updates on a GPU: one by one, and many in one launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.cuda.kernel import CudaKernel
from rowlock.executor.kernels.cuda.optimize import update_of
from rowlock.executor.kernels.registry import bind
from rowlock.graph.ops.fused_optimize import FUSED, OWN
from rowlock.graph.ops.registry import OPS
from tests.conftest import one_of_each
from tests.ops.cuda_cases import (
    CUDA,
    assert_near,
    cases,
    check_forward,
    check_in_place,
    low_types,
    taken,
)
from tests.ops.gpu import assert_compile_for_a_gpu, gpu, needs_compiler
from tests.ops.harness import run

pytestmark = [needs_compiler, pytest.mark.usefixtures("launched")]
Kernels = dict[str, CudaKernel]
SIZES = ((3, 5), (20_000,), (4, 4), (1,))  # ends of vectors, several blocks


@pytest.mark.parametrize(("name", "index"), one_of_each(cases(*FUSED, *FUSED.values()), 2))
def test_kernel_agrees_with_the_reference(name: str, index: int) -> None:
    check_forward(name, index, "float32")
    if OPS[name].in_place:
        check_in_place(name, index)


@pytest.mark.parametrize(
    ("position", "name"), list(enumerate(["momentum", "adam", "adadelta", "fused_adamw"]))
)
def test_state_in_16_bits(position: int, name: str) -> None:
    check_forward(name, 0, low_types()[position % len(low_types())])


def many(single: str) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Return operands and attributes of a fused update of parameters of several sizes."""
    rng = np.random.default_rng(1)
    fused = OPS[FUSED[single]]
    inputs: dict[str, list[Any]] = {}
    for slot in (s for s in fused.input_slots if not s.optional):
        update = OPS[single].update
        assert update is not None
        state = slot.parameter not in update.scalars
        drawn = [rng.uniform(0.1, 0.9, shape if state else (1,)) for shape in SIZES]
        inputs[slot.name] = [a.astype("f4") for a in drawn]
    attrs = dict(fused.attrs)
    for name in OWN.get(single, ()):
        attrs[name] = [k % 2 == 1 if name == "with_decay" else 0.3 + k for k in range(len(SIZES))]
    return inputs, attrs


@pytest.mark.parametrize("single", sorted(FUSED))
def test_many_updates_in_one_launch_are_those_one_by_one(single: str) -> None:
    inputs, attrs = many(single)
    how = {"dev": gpu(), **CUDA}
    together = run(OPS[FUSED[single]], inputs, attrs, **how)
    for k in range(len(SIZES)):
        operands = {slot: [arrays[k]] for slot, arrays in inputs.items()}
        own = {name: attrs[name][k] for name in OWN.get(single, ())}
        alone = run(OPS[single], operands, {**attrs, **own}, **how)
        exact = run(OPS[single], operands, {**attrs, **own})
        for slot, arrays in alone.items():
            if arrays:
                np.testing.assert_array_equal(together[slot][k], arrays[0], err_msg=slot)
                assert_near(arrays[0], exact[slot][0], slot)


def test_many_updates_are_one_launch_and_one_for_powers() -> None:
    for single, launches in (("sgd", 1), ("momentum", 1), ("adamw", 2), ("lamb", 3)):
        inputs, attrs = many(single)
        outputs = {slot.name: [np.zeros_like(a) for a in inputs[slot.name.removesuffix("Out")]]
                   for slot in OPS[FUSED[single]].output_slots if not slot.optional}  # fmt: skip
        dev = gpu()
        reads, writes = (
            {s: [dev.xp.asarray(a) for a in arrays] for s, arrays in slots.items()}
            for slots in (inputs, outputs)
        )
        steps = bind(FUSED[single], reads, writes, attrs, dev, "cuda")
        assert len(steps) == launches
        assert all(step.captured for step in steps)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("others", "nbytes"),
    [({}, 28), ({"grad": "f16", "param_out": "f16", "master_param": "float"}, 28)],
)
def test_adamw_moves_28_bytes_a_parameter(others: dict[str, str], nbytes: int) -> None:
    """Reads parameter (or master), gradient and two moments; writes all but the gradient, 16 bits too."""
    names = ("param", "grad", "moment1", "moment2", "param_out", "moment1_out", "moment2_out")
    scalars = ("learning_rate", "beta1_pow", "beta2_pow", "beta1_pow_out", "beta2_pow_out")
    types = dict.fromkeys((*names, *scalars), "float") | others
    if "master_param" in others:
        types |= {"master_param_out": "float"}
    attrs = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
    moved = update_of("adamw", tuple(types.items()), attrs).aligned
    assert sum({"float": 4, "f16": 2}[types[name]] for name in moved) == nbytes


@pytest.mark.parametrize("dtype", low_types())
@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adamw", "lamb", "rprop", "asgd"])
def test_a_master_is_updated_and_the_parameter_is_the_master_rounded(name: str, dtype: Any) -> None:
    op, low = OPS[name], dtype
    inputs, attrs = alone_of(name)
    master = inputs["Param"][0]
    operands = {**inputs, "MasterParam": [master]}
    operands["Param"], operands["Grad"] = [master.astype(low)], [inputs["Grad"][0].astype(low)]
    wide = {**inputs, "Grad": [operands["Grad"][0].astype("f4")]}
    expected = run(op, wide, attrs, dev=gpu(), **CUDA)
    results = run(op, operands, attrs, dev=gpu(), **CUDA)
    np.testing.assert_array_equal(results["MasterParamOut"][0], expected["ParamOut"][0])
    np.testing.assert_array_equal(results["ParamOut"][0], expected["ParamOut"][0].astype(low))
    for slot in (s for s in expected if s not in ("ParamOut", "MasterParamOut") and expected[s]):
        np.testing.assert_array_equal(results[slot][0], expected[slot][0], err_msg=slot)


@pytest.mark.parametrize("back_end", ["", "cuda"])
@pytest.mark.parametrize("single", ["momentum", "adamw", "lamb"])
def test_many_masters_are_updated_together(single: str, back_end: str) -> None:
    """As one by one; some gradients are float32."""
    inputs, attrs = many(single)
    low = [np.dtype("f2")] * 3 + [np.dtype("f4")]
    inputs |= {"MasterParam": inputs["Param"], "Param": [a.astype("f2") for a in inputs["Param"]]}
    inputs["Grad"] = [a.astype(t) for a, t in zip(inputs["Grad"], low, strict=True)]
    dev = gpu() if back_end else None
    together = run(OPS[FUSED[single]], inputs, attrs, dev=dev, back_end=back_end)
    for k in range(len(SIZES)):
        operands = {slot: [arrays[k]] for slot, arrays in inputs.items()}
        own = {name: attrs[name][k] for name in OWN.get(single, ())}
        alone = run(OPS[single], operands, {**attrs, **own}, dev=dev, back_end=back_end)
        for slot, arrays in alone.items():
            np.testing.assert_array_equal(together[slot][k], arrays[0], err_msg=slot)


@pytest.mark.parametrize("name", ["adam", "adamw", "lamb"])
def test_an_update_may_be_skipped(name: str) -> None:
    inputs, attrs = alone_of(name)
    skipped, whole = (
        run(OPS[name], {**inputs, "SkipUpdate": [np.array([f])]}, attrs, dev=gpu(), **CUDA)
        for f in (True, False)
    )
    expected = run(OPS[name], inputs, attrs, dev=gpu(), **CUDA)
    for slot, arrays in expected.items():
        if arrays:
            np.testing.assert_array_equal(whole[slot][0], arrays[0])
            np.testing.assert_array_equal(skipped[slot][0], inputs[slot.removesuffix("Out")][0])


def alone_of(single: str) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Return operands and attributes of one update."""
    inputs, attrs = many(single)
    own = {name: attrs[name][1] for name in OWN.get(single, ())}
    return {slot: arrays[:1] for slot, arrays in inputs.items()}, {**OPS[single].attrs, **own}


def test_double_precision_is_left_to_the_array_module() -> None:
    from tests.ops.harness import draw

    for name in ("sgd", "fused_adam"):
        inputs, attrs = draw(OPS[name], OPS[name].samples[0], "float64")
        assert not taken(OPS[name], inputs, attrs)


def test_every_kernel_compiles_for_a_gpu(launched: Kernels) -> None:
    assert_compile_for_a_gpu(launched)
