"""Optimizer updates in compiled loops, one pass over each parameter; those of many parameters are one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....graph.ir.graph import Node
from ....graph.lowering.select import in_single
from ....graph.ops.declare_update import MASTER, SKIP
from ....graph.ops.fused_optimize import FUSED
from ....graph.ops.pointwise import arguments
from ...codegen.loops import bind_loops
from ...device.device import Device
from ...host.writes import address
from ..array.optimize import UPDATES, Arrays, add_kernel, in_use, one_by_one
from ..array.widened import has_low
from ..registry import Step
from .elementwise import in_float32


def _bind(
    op_type: str,
    dev: Device,
    tables: list[Arrays],
    attrs: Mapping[str, Any],
    own: Mapping[str, Any],
) -> list[Step]:
    """Return the calls for updates whose arrays are ``tables``; ``own`` holds what differs, by attribute."""
    update = UPDATES[op_type]
    results = update.results(attrs, np.float32, own_read=True)
    totals = update.totals(attrs, np.float32, own_read=True)
    # Without scratch memory, any plan can have the calls.
    sums = dev.scratch((len(tables), len(totals)), np.float32) if totals else None
    tables = [in_use(results, totals, table, address) for table in tables]
    for name, values in own.items():  # read like operands, so that updates share a loop
        numbers = np.array(values, np.float32)
        for k, table in enumerate(tables):
            table[name] = numbers[k : k + 1]
    entries, summed = [], arguments([*totals.values()])
    for k, table in enumerate(tables):
        places = (
            {} if sums is None else dict(zip(totals, np.split(sums[k], len(totals)), strict=True))
        )
        ones = (1,) * table["param"].ndim
        written = [(each, places[name].reshape(ones)) for name, each in totals.items()]
        entries.append((written, {name: table[name] for name in table if name in summed}))
        table |= places
    last = [name for name in results if name.removesuffix("_out") in update.scalars]
    for names in ([name for name in results if name not in last], last):
        read = arguments([results[name] for name in names])
        for table in tables:
            written = [(results[name], table[name]) for name in names if name in table]
            operands = [name for name in table if name in read]
            entries.append((written, {name: table[name] for name in operands}))
    return [*bind_loops([entry for entry in entries if entry[0]])]


def _alone(op_type: str) -> Callable[..., list[Step]]:
    own = UPDATES[op_type].own

    def bind(dev: Device, arrays: Arrays, attrs: Mapping[str, Any]) -> list[Step]:
        return _bind(op_type, dev, [arrays], attrs, {name: [attrs[name]] for name in own})

    return bind


def _together(op_type: str) -> Callable[..., list[Step]]:
    """Return what binds many updates; float32 scratch for low precision is one parameter's at a time."""
    own, apart = UPDATES[op_type].own, one_by_one(op_type, "llvm")

    def bind(dev: Device, columns: Arrays, attrs: Mapping[str, Any]) -> list[Step]:
        if has_low(columns):
            return apart(dev, columns, attrs)
        rows = zip(*columns.values(), strict=True)
        tables = [dict(zip(columns, row, strict=True)) for row in rows]
        return _bind(op_type, dev, tables, attrs, {name: attrs[name] for name in own})

    return bind


def _plain(node: Node) -> bool:
    """A master in float32 and SkipUpdate are left to NumPy."""
    return not (node.inputs.get(MASTER) or node.inputs.get(SKIP)) and in_float32(node)


def _plain_together(node: Node) -> bool:
    return _plain(in_single(node))


for _op_type, _fused in FUSED.items():
    add_kernel(_op_type, "llvm", _alone(_op_type), _plain, masters=False)
    add_kernel(_fused, "llvm", _together(_op_type), _plain_together, masters=False, low=True)
