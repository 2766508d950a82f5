"""One update of many parameters: the slots of the single op, each a list in the order of the parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import optimize, optimize_adaptive, optimize_by_norm, optimize_proximal  # noqa: F401 - they declare
from .declare_update import MASTER, SKIP
from .operands import Slot, record
from .registry import OPS, Inference, Op, Spec, define
from .samples import Sample, normal, sample, uniform

_UPDATES = {name: op.update for name, op in OPS.items() if op.update is not None}

# Single op -> fused op; Paddle has those of sgd, momentum and adam under these names.
FUSED: Mapping[str, str] = {
    name: {"momentum": "merged_momentum"}.get(name, f"fused_{name}") for name in _UPDATES
}

# Attributes of a single op that differ between parameters of one fused op: there they are lists.
OWN: Mapping[str, tuple[str, ...]] = {name: update.own for name, update in _UPDATES.items()}


def own_attributes(single: str, attrs: Mapping[str, Any], k: int) -> dict[str, Any]:
    """Return the attributes of the k-th update from those of the fused op."""
    return {**attrs, **{name: attrs[name][k] for name in OWN[single]}}


# Slots that an update may do without: all parameters of one fused op have them, or none has.
SOMETIMES = (MASTER, SKIP, "LearningRate", f"{MASTER}Out", "Beta1PowOut", "Beta2PowOut")


def fused_slots(op: Op, slots: Sequence[Slot]) -> list[Slot]:
    """Return a single op's slots (inputs, or outputs) as the fused op has them."""
    arrays = (slot for slot in slots if slot.name not in op.numbers)
    return [Slot(s.name, True, s.optional and s.name in SOMETIMES, s.parameter) for s in arrays]


def _each(single: Op, op: Inference) -> dict[str, list[Spec]]:
    """Apply the single op's rule to each parameter in turn."""
    count = len(op.specs("Param"))
    for name in OWN[single.type]:
        op.require(len(op.attr(name)) == count, f"{name} must have one entry per parameter")
    slots = [slot.name for slot in single.input_slots if op.has(slot.name)]
    for slot in slots:
        op.require(len(op.specs(slot)) == count, f"{slot} must have one entry per parameter")
    results: dict[str, list[Spec]] = {
        slot.name: [] for slot in fused_slots(single, single.output_slots)
    }
    for k in range(count):
        read = {slot: [op.specs(slot)[k]] for slot in slots}
        for slot, specs in single.infer(Inference(op.op, read, op.attrs)).items():
            results[slot] += specs
    return results


def _sample(single: Op) -> Sample:
    """Return two parameters of unlike shapes."""
    (first,) = single.samples
    other = {
        slot: normal(5)
        if slot in ("Param", "Grad")
        else uniform(*((1,) if drawn.shape == (1,) else (5,)), low=0.1, high=0.9)
        for slot, drawn in first.inputs.items()
    }
    attrs = dict(first.attrs)
    for name in OWN[single.type]:
        attrs[name] = [attrs[name], single.attrs[name]]
    return sample({slot: [drawn, other[slot]] for slot, drawn in first.inputs.items()}, **attrs)


def _define(single: Op, name: str) -> None:
    inputs = fused_slots(single, single.input_slots)
    outputs = fused_slots(single, single.output_slots)
    attrs = {**single.attrs, **{own: [] for own in OWN[single.type]}}
    define(
        name,
        record(name, inputs, outputs, attrs),
        lambda op: _each(single, op),
        in_place={slot.name: single.in_place[slot.name] for slot in outputs},
        samples=(_sample(single),),
    )


for _single, _fused in FUSED.items():
    _define(OPS[_single], _fused)
