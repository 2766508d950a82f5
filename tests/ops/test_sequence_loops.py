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
from tests.ops.sequence_cases import KINDS, check_pools, check_softmax

pytestmark = pytest.mark.skipif("llvm" not in installed(), reason="LLVM is not installed")
LENGTHS = [[3, 0, 4, 1], [1], [0, 40, 2, 0, 70]]


def computed(back_end: str, op: str, inputs: Any, outputs: Any, **attrs: Any) -> list[np.ndarray]:
    """Return what an op writes over arrays that are full of sevens."""
    results = {slot: np.full(like.shape, 7, like.dtype) for slot, like in outputs.items()}
    slots = ({slot: [array] for slot, array in side.items()} for side in (inputs, results))
    for step in bind(op, *slots, {**OPS[op].attrs, **attrs}, Device(), back_end):
        step()
    return list(results.values())


def compare(op: str, inputs: Any, outputs: Any, **attrs: Any) -> list[np.ndarray]:
    loops, formula = (computed(how, op, inputs, outputs, **attrs) for how in ("llvm", "numpy"))
    for one, other in zip(loops, formula, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    return loops


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("columns", [1, 3, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_pools(lengths: list[int], columns: int, kind: str) -> None:
    check_pools(compare, lengths, columns, kind)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_softmax(lengths: list[int]) -> None:
    check_softmax(compare, lengths)


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
        computed("llvm", op, inputs, outputs, **attrs)
