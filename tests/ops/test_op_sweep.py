"""The worker of ``benchmarks/op_sweep.py`` makes the calls of ops that the tree has today."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.workers.op_rowlock import build


@pytest.mark.parametrize("case", ["softplus", "1.14"])
def test_an_op_is_called_forward_and_back(case: str) -> None:
    results = build(case)()
    assert len(results) > 1 and all(np.isfinite(array).all() for array in results)
