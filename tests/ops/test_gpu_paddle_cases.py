"""Replays what Paddle computed of recurrent ops and chains by kernels of a GPU, real or simulated."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from rowlock.executor.kernels.back_ends import LIBRARIES
from rowlock.executor.kernels.registry import KERNELS
from tests.ops import harness, test_paddle_cases
from tests.ops.gpu import gpu, needs_compiler
from tests.ops.test_paddle_cases import RECORD, chosen, differences

pytestmark = needs_compiler
NAMES = sorted(
    name
    for name in RECORD
    if name.startswith(("lstm", "gru", "linear_chain_crf", "crf_decoding", "sequence_", "row_conv"))
    and any((name, library) in KERNELS for library in LIBRARIES["cupy"])
)


@pytest.mark.parametrize(
    "part", [pytest.param(4, id="some"), pytest.param(1, marks=pytest.mark.slow, id="all")]
)
@pytest.mark.parametrize("name", NAMES)
def test_cases(name: str, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case, or one of so many."""
    pick: Any = partial(chosen, libraries=LIBRARIES["cupy"], here={*LIBRARIES["cupy"]})
    monkeypatch.setattr(harness, "bind", pick)
    for function in ("run", "gradients"):
        on_gpu = partial(getattr(test_paddle_cases, function), dev=gpu())
        monkeypatch.setattr(test_paddle_cases, function, on_gpu)
    cases = RECORD[name]
    wrong = [
        f"{case[1]} {case[2]}: {text}"
        for case in random.sample(cases, -(-len(cases) // part))
        for text in differences(name, case)
    ]
    assert not wrong, "\n".join(wrong)
