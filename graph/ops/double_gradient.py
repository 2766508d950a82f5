"""Gradients of gradient ops that are functions of whole arrays: a formula, derived once more.

Statistics that the gradient op finds ready are computed again, from what they depend on.
"""

from __future__ import annotations

from typing import Any

from . import formula as f
from .operands import Operands, Slot, parameter_name, record
from .registry import Op
from .second_order import Second


def twice(first: f.Formula, slope: Op, second: Second) -> f.Formula:
    """Return the formula of the gradient op of ``slope``, whose slots ``second`` names.

    ``first`` computes what ``slope`` does, from its record: not from results of the forward op that depend on
    other operands.
    """
    parameters = {s.name: s.parameter for s in (*slope.input_slots, *slope.output_slots)}
    results = {s.name: f"r{k}" for k, s in enumerate(slope.output_slots)}
    # The operands of the gradient op, and what comes down for its results, by the fields of its gradient op.
    sources = {parameter_name(slot): source for slot, source in second.reads.items()}
    operands = {field: parameters[s] for field, s in sources.items() if s in parameters}
    above = {field: s.removesuffix("@GRAD") for field, s in sources.items() if s not in parameters}
    of_field = {field: f"a{k}" for k, field in enumerate(operands.values())}
    targets = {
        parameter_name(slot): f"d_{of_field[parameters[source.removesuffix('@GRAD')]]}"
        for slot, source in second.writes.items()
    }
    inner = record(
        "Slope",
        [Slot(name.upper(), False, True, name) for name in of_field.values()],
        [Slot(name.upper(), False, True, name) for name in results.values()],
        {},
    )

    def renamed(a: Any) -> f.Results:
        fields = vars(a)
        changes = {parameters[slot]: fields.get(name) for slot, name in results.items()}
        read = {field: fields[name] for field, name in of_field.items()}
        terms = first(slope.filled({**{n: fields[n] for n in slope.attrs}, **changes, **read}))
        return {name: terms.get(parameters[slot]) for slot, name in results.items()}

    derived = f.gradient(renamed, inner)

    def formula(a: Operands) -> f.Results:
        fields = vars(a)
        values = {
            **{name: fields[name] for name in slope.attrs},
            **{of_field[source]: fields[field] for field, source in operands.items()},
            **{f"d_{results[source]}": fields[field] for field, source in above.items()},
            **{name: fields[field] for field, name in targets.items()},
        }
        terms = derived(Operands.of(values))
        return {field: terms[name] for field, name in targets.items()}

    return formula


def of_normed(*statistics: str) -> Second:
    """Return the slots of the gradient of a norm's gradient op, which reads ``statistics``."""
    return Second(
        {
            "X": "X",
            "Scale": "Scale",
            **{slot: slot for slot in statistics},
            "DY": "Y@GRAD",
            "DDX": "X@GRAD@GRAD",
            "DDScale": "Scale@GRAD@GRAD",
            "DDBias": "Bias@GRAD@GRAD",
        },
        {"DX": "X@GRAD", "DScale": "Scale@GRAD", "DDY": "Y@GRAD@GRAD"},
        {"DX": ["X"], "DScale": ["Scale"], "DDY": ["DY"]},
        optional=("Scale",),
    )
