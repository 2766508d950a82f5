"""Loops of sequences that are written by hand compute what the ops' formulas do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.device.device import Device
from rowlock.executor.kernels.capabilities import installed
from rowlock.executor.kernels.loops.sequence import WRITTEN
from rowlock.executor.kernels.registry import bind
from rowlock.graph.ops.registry import OPS
from rowlock.strategies.errors import SequenceError

pytestmark = pytest.mark.skipif("numba" not in installed(), reason="Numba is not installed")
LENGTHS = [[3, 0, 4, 1], [1], [0, 40, 2, 0, 70]]


def computed(back_end: str, op: str, inputs: Any, outputs: Any, **attrs: Any) -> list[np.ndarray]:
    """Return what an op writes over arrays that are full of sevens."""
    results = {slot: np.full(like.shape, 7, like.dtype) for slot, like in outputs.items()}
    slots = ({slot: [array] for slot, array in side.items()} for side in (inputs, results))
    for step in bind(op, *slots, {**OPS[op].attrs, **attrs}, Device(), back_end):
        step()
    return list(results.values())


def compare(op: str, inputs: Any, outputs: Any, **attrs: Any) -> list[np.ndarray]:
    loops, formula = (computed(how, op, inputs, outputs, **attrs) for how in ("numba", "numpy"))
    for one, other in zip(loops, formula, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    return loops


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("columns", [1, 3, 16])
@pytest.mark.parametrize("kind", ["sum", "AVERAGE", "SQRT", "MAX", "FIRST", "LAST"])
def test_pools(lengths: list[int], columns: int, kind: str) -> None:
    rng, ends = np.random.default_rng(0), np.cumsum([0, *lengths])
    x = rng.standard_normal((ends[-1], columns)).astype("f4")
    d = rng.standard_normal((len(lengths), columns)).astype("f4")
    if kind == "MAX":  # often of several rows, of which the first is taken
        x = np.rint(x)
    inputs, attrs = {"X": x, "X@LOD": ends}, {"pooltype": kind, "pad_value": -9.0}
    results = {"Out": d, "MaxIndex": d.astype("i4")}
    _, index = compare("sequence_pool", inputs, results, **attrs)
    inputs |= {"MaxIndex": index, "Out@GRAD": d}
    compare("sequence_pool_grad", inputs, {"X@GRAD": x}, **attrs)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_softmax(lengths: list[int]) -> None:
    rng, ends = np.random.default_rng(0), np.cumsum([0, *lengths])
    x, d = (30 * rng.standard_normal((2, ends[-1], 1))).astype("f4")
    (out,) = compare("sequence_softmax", {"X": x, "X@LOD": ends}, {"Out": x})
    inputs = {"X": x, "X@LOD": ends, "Out": out, "Out@GRAD": d}
    compare("sequence_softmax_grad", inputs, {"X@GRAD": x})


@pytest.mark.parametrize("op", sorted(WRITTEN))
def test_sequences_that_do_not_cover_the_rows_are_refused(op: str) -> None:
    rows, each, ends = np.ones((5, 1), "f4"), np.ones((2, 1), "f4"), np.array([0, 2, 6])
    per_row = rows if op.startswith(("sequence_softmax", "sequence_expand")) else each
    expands, grad = op.startswith("sequence_expand"), op.endswith("_grad")
    inputs = {"X": each, "Y": rows, "Y@LOD": ends} if expands else {"X": rows, "X@LOD": ends}
    inputs |= {"Out@GRAD": per_row} if grad else {}
    if op == "sequence_softmax_grad":
        inputs["Out"] = rows
    outputs = {"X@GRAD": inputs["X"]} if grad else {"Out": per_row}
    attrs = {} if expands else {"pooltype": "SUM"}
    operand = "Y" if expands else "X"
    with pytest.raises(SequenceError, match=f"{op}: the sequences of {operand} end at row 6"):
        computed("numba", op, inputs, outputs, **attrs)
