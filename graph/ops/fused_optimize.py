"""One update of many parameters: the slots of the single op, each a list in the order of the parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import optimize as _optimize  # noqa: F401 - what is fused must be declared first
from .operands import Slot
from .registry import OPS, Inference, Op, Spec, define
from .samples import Sample, normal, sample, uniform

# Single op -> fused op; Paddle has the first three under these names.
FUSED: Mapping[str, str] = {
    "sgd": "fused_sgd",
    "momentum": "merged_momentum",
    "adam": "fused_adam",
    "adamw": "fused_adamw",
    "adagrad": "fused_adagrad",
    "decayed_adagrad": "fused_decayed_adagrad",
    "adamax": "fused_adamax",
    "adadelta": "fused_adadelta",
}

# Attributes of a single op that differ between parameters of one fused op: there they are lists.
OWN: Mapping[str, tuple[str, ...]] = {"adamw": ("lr_ratio", "coeff", "with_decay")}


def own_attributes(single: str, attrs: Mapping[str, Any], k: int) -> dict[str, Any]:
    """Return the attributes of the k-th update from those of the fused op."""
    return {**attrs, **{name: attrs[name][k] for name in OWN.get(single, ())}}


# Slots that an update may do without: all parameters of one fused op have them, or none has.
SOMETIMES = ("MasterParam", "SkipUpdate", "MasterParamOut")


def fused_slots(slots: Sequence[Slot]) -> list[str]:
    """Return the names of a single op's slots (inputs, or outputs) that the fused op has too."""
    return [slot.name for slot in slots if not slot.optional or slot.name in SOMETIMES]


def _each(single: Op, op: Inference) -> dict[str, list[Spec]]:
    """Apply the single op's rule to each parameter in turn."""
    count = len(op.specs("Param"))
    for name in OWN.get(single.type, ()):
        op.require(len(op.attr(name)) == count, f"{name} must have one entry per parameter")
    slots = [slot.name for slot in single.input_slots if op.has(slot.name)]
    for slot in slots:
        op.require(len(op.specs(slot)) == count, f"{slot} must have one entry per parameter")
    made: dict[str, list[Spec]] = {slot: [] for slot in fused_slots(single.output_slots)}
    for k in range(count):
        read = {slot: [op.specs(slot)[k]] for slot in slots}
        for slot, specs in single.infer(Inference(op.op, read, op.attrs)).items():
            made[slot] += specs
    return made


def _sample(single: Op) -> Sample:
    """Return two parameters of unlike shapes."""
    (given,) = single.samples
    other = {
        slot: normal(5)
        if slot in ("Param", "Grad")
        else uniform(*((1,) if drawn.shape == (1,) else (5,)), low=0.1, high=0.9)
        for slot, drawn in given.inputs.items()
    }
    attrs = dict(given.attrs)
    for name in OWN.get(single.type, ()):
        attrs[name] = [attrs[name], single.attrs[name]]
    return sample({slot: [drawn, other[slot]] for slot, drawn in given.inputs.items()}, **attrs)


def _define(single: Op, name: str) -> None:
    used, made = fused_slots(single.input_slots), fused_slots(single.output_slots)
    inputs, outputs = ([f"{s}*{'?' * (s in SOMETIMES)}" for s in slots] for slots in (used, made))
    define(
        Op(
            type=name,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            attrs={**single.attrs, **{own: [] for own in OWN.get(single.type, ())}},
            shape=lambda op: _each(single, op),
            in_place={slot: single.in_place[slot] for slot in made},
            samples=(_sample(single),),
        )
    )


for _single, _fused in FUSED.items():
    _define(OPS[_single], _fused)
