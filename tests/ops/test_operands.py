"""Records of operands: what a class declares, and what a kernel is bound to."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import numpy as np
import pytest

from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.kernels.registry import KERNELS
from rowlock.graph.ops.operands import (
    Gradient,
    Input,
    Inputs,
    Operands,
    Outputs,
    SlopeOfX,
    Unary,
    named,
    slot_name,
)
from rowlock.graph.ops.registry import OPS, Op

capabilities()  # imports every declaration and every kernel
UPDATES = {name for name, op in OPS.items() if op.input_slots and op.input_slots[0].name == "Param"}


class Scaled(Unary):
    by_tensor: Input | None = named("By")
    terms: Inputs | None
    parts: Outputs
    by: float = 1.0
    axes: Sequence[int] = [0]


def test_fields_are_slots_and_attributes_in_their_order() -> None:
    declared = Scaled.declared()
    assert [slot.text for slot in declared.inputs] == ["X", "By?", "Terms*?"]
    assert [slot.parameter for slot in declared.inputs] == ["x", "by_tensor", "terms"]
    assert [slot.text for slot in declared.outputs] == ["Out", "Parts*"]
    assert declared.attrs == {"by": 1.0, "axes": [0]}


def test_a_field_declared_again_stands_behind_what_is_new() -> None:
    assert [slot.text for slot in Gradient.declared().inputs] == ["Out@GRAD"]
    assert [slot.text for slot in SlopeOfX.declared().inputs] == ["X", "Out@GRAD"]


def test_results_of_a_gradient_op_may_be_left_out() -> None:
    class StackGrad(Operands):
        d_y: Input
        d_x: Outputs

    (slot,) = StackGrad.declared().outputs
    assert (slot.text, slot.optional, slot.duplicable) == ("X@GRAD*", True, True)


@pytest.mark.parametrize(
    ("field", "slot"),
    [("x", "X"), ("x_shape", "XShape"), ("d_x_shape", "XShape@GRAD"), ("beta1_pow", "Beta1Pow")],
)
def test_slots_are_named_after_fields(field: str, slot: str) -> None:
    assert slot_name(field) == slot


def test_an_op_is_bound_to_arrays_defaults_filled_in() -> None:
    op = Op("scaled", Scaled)
    x, out = np.ones(2), np.zeros(2)
    a = op.bound({"X": [x], "Terms": [x, out]}, {"Out": [out]}, {"by": 2.0, "op_role": 1})
    assert isinstance(a, Scaled)
    assert a.x is x and a.out is out and a.by_tensor is None
    assert a.terms == [x, out] and a.parts == []
    assert (a.by, a.axes) == (2.0, [0])
    assert op.arrays(a).keys() == {"x", "by_tensor", "terms", "out", "parts"}


def test_a_record_is_replaced_not_changed() -> None:
    a = Unary(x=np.ones(2), out=np.zeros(2))
    with pytest.raises(AttributeError, match="replace"):
        a.x = a.out  # type: ignore[misc]
    assert a.replace(x=a.out).x is a.out
    assert a.x is not a.out


def test_fields_of_every_op_are_told_apart() -> None:
    for name, op in OPS.items():
        slots = [slot.parameter for slot in (*op.input_slots, *op.output_slots)]
        assert len({*slots, *op.attrs}) == len(slots) + len(op.attrs), name


def test_every_kernel_takes_a_device_and_a_record() -> None:
    for (name, back_end), kernel in KERNELS.items():
        if name not in UPDATES:
            signature = inspect.signature(kernel.function, follow_wrapped=False)
            parameters = list(signature.parameters)
            assert parameters == ["dev", "a"], f"{name} on {back_end}"
