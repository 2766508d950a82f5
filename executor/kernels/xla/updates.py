"""Lowerings of optimizer updates, of one parameter and of many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....graph.ir.graph import Node
from ....graph.ops.declare_update import MASTER, SKIP
from ....graph.ops.fused_optimize import FUSED, own_attributes
from ....graph.ops.registry import OPS
from ..array.optimize import UPDATES
from .lowering import Lowering, Operands, evaluate_all, lowering

Made = Mapping[str, Any]


def _plain(node: Node) -> bool:
    """A master and SkipUpdate have no lowering."""
    return not (node.inputs.get(MASTER) or node.inputs.get(SKIP))


def _alone(op_type: str) -> Lowering:
    op, update = OPS[op_type], UPDATES[op_type]

    def lowered(x: Operands) -> Made:
        arrays = {slot.parameter: x[slot.name] for slot in op.input_slots}
        dtype = arrays["param"].dtype
        totals = update.totals(x.attrs, dtype)
        summed = evaluate_all(totals.values(), arrays)
        arrays |= {name: each.sum() for name, each in zip(totals, summed, strict=True)}
        results = update.results(x.attrs, dtype)
        values = evaluate_all(results.values(), arrays)
        slots = {slot.parameter: slot.name for slot in op.output_slots}
        return {slots[name]: value for name, value in zip(results, values, strict=True)}

    return lowered


def _each(op_type: str) -> Lowering:
    alone = _alone(op_type)

    def lowered(x: Operands) -> Made:
        results: dict[str, list[Any]] = {}
        for k in range(len(x.many("Param"))):
            arrays = {slot: [column[k]] for slot, column in x.arrays.items()}
            one = Operands(arrays, own_attributes(op_type, x.attrs, k), {})
            for slot, array in alone(one).items():
                results.setdefault(slot, []).append(array)
        return results

    return lowered


for _op_type, _fused in FUSED.items():
    lowering(_op_type, takes=_plain)(_alone(_op_type))
    lowering(_fused, takes=_plain)(_each(_op_type))
