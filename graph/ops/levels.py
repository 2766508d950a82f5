"""Offsets of results that keep some rows of their operands: a function of the op's record computes them.

The sizes of these results, a sequence for each image, say, are known only in a step. The declaration of the op
names another op that computes the offsets::

    define("matrix_nms", MatrixNms, matrix_shape, lod=computed("lod_of_decayed", "Out Index"), samples=SAMPLES)
    define_level(
        "lod_of_decayed", MatrixNms, lambda a: decayed(a).ends(),
        count=lambda op: op.shape("Scores")[0], samples=SAMPLES,
    )
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .lod import Level, LodRule, Lods, no_sequences
from .operands import LOD_SUFFIX, Array, Operands, Slot, record
from .registry import OFFSETS, OPS, Inference, Specs, define
from .samples import Sample


def define_level(
    name: str,
    of: type[Operands],
    ends: Callable[[Any], Array],
    *,
    reads: str = "",
    count: Callable[[Inference], int],
    samples: Sequence[Sample],
    **settings: Any,
) -> None:
    """Declare an op that computes offsets by ``ends``, a function of operands and attributes of another op.

    ``of`` is the record of that other op, ``reads`` the fields of operands and offsets that ``ends`` needs
    (default: all), ``count`` the number of sequences (-1: not known yet). ``samples`` may be the other op's.
    """
    declared = of.declared()
    slots = declared.read(reads)
    inputs = [slot for slot in slots if slot not in declared.lods]
    lods = [slot for slot in slots if slot in declared.lods]
    known = {slot.name for slot in slots}

    def shape(op: Inference) -> Mapping[str, Specs]:
        sequences = count(op)
        return {"Out": OFFSETS._replace(shape=(sequences + 1 if sequences >= 0 else -1,))}

    define(
        name,
        record(name, inputs, [Slot("Out", False, False, "out")], declared.attrs, lods),
        shape,
        host=lambda a: {"out": ends(a)},
        lod=no_sequences,
        samples=tuple(
            Sample(({slot: x for slot, x in each.inputs.items() if slot in known},), each.attrs)
            for each in samples
        ),
        **settings,
    )


def computed(name: str, results: str, needs: str = "") -> LodRule:
    """Return the rule that the op ``name`` computes the level of ``results``.

    They have none where an operand in the slots ``needs`` has none.
    """

    def rule(op: Lods[Any]) -> Mapping[str, tuple[Any, ...]]:
        if not all(op.of(slot, k) for slot in needs.split() for k in range(op.uses(slot))):
            return {}
        return dict.fromkeys(results.split(), (computed_level(op, name),))

    return rule


def computed_level(op: Lods[Level], name: str, **attrs: Any) -> Level:
    """Return the level that the op ``name`` computes from another op's operands, offsets and attributes.

    ``attrs`` are attributes that the other op does not have.
    """
    several = {slot.name for slot in op.input_slots if slot.duplicable}
    operands: dict[str, list[Level]] = {
        slot.name: [op.value(slot.name, k) for k in range(op.uses(slot.name))]
        for slot in OPS[name].input_slots
    }
    for slot in OPS[name].lod_slots:
        source = slot.name.removesuffix(LOD_SUFFIX)
        levels = [op.of(source, k) for k in range(op.uses(source))]
        last = [own[-1] for own in levels if own]
        operands[slot.name] = last if source in several else [*levels[0]]
    shared = {attr: op.attrs[attr] for attr in OPS[name].attrs if attr not in attrs}
    return op.level(name, {slot: v for slot, v in operands.items() if v}, {**shared, **attrs})


def level_from(name: str, **operands: str) -> LodRule:
    """Return the rule that the op ``name`` computes the level of Out from ``operands``, by its slots.

    The operand ``"X"`` is a variable, ``"X@LOD"`` the last level of its sequences; where it has no sequences,
    the result has none. Attributes have the same names in both ops.
    """

    def rule(op: Lods[Any]) -> Mapping[str, tuple[Any, ...]]:
        inputs: dict[str, Sequence[Any]] = {}
        for slot, source in operands.items():
            variable = source.removesuffix(LOD_SUFFIX)
            if source != variable and not op.of(variable):
                return {}
            if op.uses(variable):
                inputs[slot] = op.of(variable)[-1:] if source != variable else [op.value(variable)]
        attrs = {attr: op.attrs[attr] for attr in OPS[name].attrs}
        return {"Out": (op.level(name, inputs, attrs),)}

    return rule
