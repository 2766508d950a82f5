"""Updates of parameters in low precision go to a float32 master; SkipUpdate leaves everything as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.device.device import Device
from rowlock.graph.ops.registry import OPS
from rowlock.strategies.errors import ShapeError
from rowlock.strategies.types import BFLOAT16
from tests.ops.harness import Arrays, draw, infer, run, specs_of
from tests.ops.reference import REFERENCE
from tests.ops.test_cupy_calls import LimitedDevice

LOW = [np.dtype(np.float16), BFLOAT16]
UPDATES = ["sgd", "momentum", "adam", "adamw", "lamb", "rprop", "asgd"]
SIZE = 70_000  # several blocks


def operands(name: str, dtype: Any) -> tuple[Arrays, dict[str, Any]]:
    """A sample's operands, made long; Param and Grad in low precision beside a master."""
    inputs, attrs = draw(OPS[name], OPS[name].samples[0], "float32")
    long = {
        slot: [np.resize(a, SIZE) if a.size > 1 else a for a in many]
        for slot, many in inputs.items()
    }
    long["MasterParam"] = long["Param"]
    for slot in ("Param", "Grad"):
        long[slot] = [long[slot][0].astype(dtype)]
    return long, attrs


@pytest.mark.parametrize("device", [Device, LimitedDevice])
@pytest.mark.parametrize("dtype", LOW, ids=str)
@pytest.mark.parametrize("name", UPDATES)
def test_the_master_is_updated_and_the_parameter_is_it_rounded(
    name: str, dtype: Any, device: Any
) -> None:
    inputs, attrs = operands(name, dtype)
    ours = run(OPS[name], inputs, attrs, dev=device())
    exact = {slot: many[0].astype("float64") for slot, many in inputs.items()}
    expected = REFERENCE[name]({**exact, "Param": exact["MasterParam"]}, attrs)
    expected["MasterParamOut"] = expected.pop("ParamOut")
    for slot, value in expected.items():
        np.testing.assert_allclose(ours[slot][0], value, rtol=2e-5, atol=2e-6, err_msg=slot)
    np.testing.assert_array_equal(ours["ParamOut"][0], ours["MasterParamOut"][0].astype(dtype))


@pytest.mark.parametrize("device", [Device, LimitedDevice])
@pytest.mark.parametrize("master", [True, False])
@pytest.mark.parametrize("name", ["adam", "adamw", "lamb"])
def test_a_skipped_update_changes_nothing(name: str, master: bool, device: Any) -> None:
    inputs, attrs = operands(name, LOW[0])
    if not master:
        inputs["Param"] = inputs.pop("MasterParam")
        inputs["Grad"] = [inputs["Grad"][0].astype("float32")]
    inputs["Grad"][0][:3] = np.nan
    for skip in (True, False):
        inputs["SkipUpdate"] = [np.array([skip])]
        ours = run(OPS[name], inputs, attrs, dev=device())
        for slot, source in OPS[name].in_place.items():
            if source == "Param" and master:
                before = inputs["MasterParam"][0].astype(LOW[0])
            elif source in inputs:
                before = inputs[source][0]
            else:
                continue
            assert np.array_equal(ours[slot][0], before) == skip, slot


def test_masters_that_do_not_fit_are_refused() -> None:
    inputs, attrs = operands("sgd", LOW[0])
    for wrong in (inputs["MasterParam"][0][:5], inputs["Param"][0]):
        read = specs_of({**inputs, "MasterParam": [wrong]})
        with pytest.raises(ShapeError, match="MasterParam must be float32"):
            infer(OPS["sgd"], read, attrs)
    read = specs_of({**inputs, "Param": inputs["MasterParam"], "Grad": inputs["MasterParam"]})
    with pytest.raises(ShapeError, match="MasterParam must be float32"):
        infer(OPS["sgd"], read, attrs)
    inputs, attrs = operands("adam", LOW[0])
    read = specs_of({**inputs, "SkipUpdate": [np.zeros(1, "float32")]})
    with pytest.raises(ShapeError, match="SkipUpdate must be one boolean"):
        infer(OPS["adam"], read, attrs)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [*LOW, np.dtype("float32")], ids=str)
@pytest.mark.parametrize("device", [Device, LimitedDevice])
def test_one_bad_element_among_many_is_found(bad: float, dtype: Any, device: Any) -> None:
    op = OPS["check_finite_and_unscale"]
    for at in (None, 0, SIZE - 1):
        grads = [np.full(SIZE, 3, dtype), np.full(5, 3, dtype)]
        if at is not None:
            grads[0][at] = bad
        ours = run(op, {"X": grads, "Scale": [np.array([4], "float32")]}, {}, dev=device())
        assert ours["FoundInfinite"][0][0] == (at is not None)
        assert (ours["Out"][1] == 0.75).all() and ours["Out"][0].dtype == dtype
