"""Trace a formula: its results as terms, each function of the same terms once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...graph.ops.formula import Term, in_order
from ...graph.ops.operands import Operands
from ...graph.ops.registry import Op
from ...strategies.bounded_dict import BoundedDict

Place = tuple[str, int]  # a slot, and the position there
_TRACED_KEPT = 1024
_TABLE_BYTES = 1 << 16  # of tables in what is kept: larger ones are made again
_traced: BoundedDict[tuple[Any, ...], list[tuple[Term, str, Place]]] = BoundedDict(_TRACED_KEPT)


def traced(op: Op, a: Operands) -> tuple[list[tuple[Term, Any, Place]], dict[str, Any]]:
    """Return an op's results as terms, each with where it goes (slot and position), and operands by name.

    ``a`` is the op's record of whatever has a shape and a dtype; results that are None there are left out.
    What was traced for the same shapes and attributes before is not traced again.
    """
    fields, arrays = vars(a), dict[str, Any]()
    slots = [slot for side in op.parameters for slot in side]
    for _, name, several in slots:
        value = fields[name]
        many = enumerate(value) if several else ()
        arrays |= {f"{name}{k}": x for k, x in many} if several else {name: value}
    own = {name for _, name, _ in slots}
    settings = [(name, value) for name, value in fields.items() if name not in own]
    sizes = [(name, x if x is None else (x.shape, x.dtype)) for name, x in arrays.items()]
    key = (op.formula, repr(settings), tuple(sizes))
    results = _traced.get(key)
    if results is None:
        results = _trace(op, a, arrays)
        tables = (t.options for t in in_order(r for r, _, _ in results) if t.fn == "table")
        if sum(table.nbytes for table in tables) <= _TABLE_BYTES:
            _traced[key] = results
    used = {name: x for name, x in arrays.items() if x is not None}
    return [(root, used[name], place) for root, name, place in results], used


def _trace(op: Op, a: Operands, arrays: Mapping[str, Any]) -> list[tuple[Term, str, Place]]:
    """Return an op's results as terms, each with the name of its array and where that stands."""
    fields: dict[str, Any] = dict(vars(a))

    def term(name: str, fn: str) -> Term | None:
        array = arrays[name]
        return None if array is None else Term(fn, (), array.shape, array.dtype, name)

    for slots, fn in zip(op.parameters, ("arg", "result"), strict=True):
        for _, name, several in slots:
            count = range(len(fields[name])) if several else ()
            fields[name] = [term(f"{name}{k}", fn) for k in count] if several else term(name, fn)
    assert op.formula is not None
    results = op.formula(a.of(fields))
    roots = []
    for slot, name, several in op.parameters[1]:
        names = [f"{name}{k}" for k in range(len(fields[name]))] if several else [name]
        terms = results.get(name) if several else [results.get(name)]
        pairs = enumerate(zip(terms or [None] * len(names), names, strict=True))
        roots += [(root, at, (slot, k)) for k, (root, at) in pairs if arrays[at] is not None]
    merged = _merged([root for root, _, _ in roots])
    return [(root, at, place) for root, (_, at, place) in zip(merged, roots, strict=True)]


def _merged(roots: Sequence[Term]) -> list[Term]:
    """Return the roots with one term in place of all that are the same function of the same terms."""
    same: dict[tuple[Any, ...], Term] = {}
    merged: dict[Term, Term] = {}
    for term in in_order(roots):
        args = tuple([merged[arg] for arg in term.args])
        options = term.options
        if isinstance(options, np.ndarray):
            options = id(options)
        elif isinstance(options, float):
            options = repr(options)  # -0.0 is not 0.0
        key = (term.fn, args, term.shape, term.dtype, type(options), options)
        known = same.get(key)
        if known is None:
            own = args == term.args
            known = term if own else Term(term.fn, args, term.shape, term.dtype, term.options)
            same[key] = known
        merged[term] = known
    return [merged[root] for root in roots]
