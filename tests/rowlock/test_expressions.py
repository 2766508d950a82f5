"""Operators of variables and layers compute what Paddle does, of the ops that it appends."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from tests.programs import own_programs
from tests.reference import expressions

pytestmark = pytest.mark.usefixtures("no_compiled_loops")
REFERENCE = Path(__file__).parents[1] / "reference"
# Where Paddle has an op of its own, or appends ops that change nothing.
TOGETHER = 64  # expressions in a program: what gradients take grows with all of it
COMPOSED = {"x.numel", "L.rank", "L.roll", "L.Normal", "L.Uniform", "L.Categorical"}


def run(table: dict[str, Any], modules: dict[str, Any]) -> dict[str, tuple[list[str], Any]]:
    """Build a table's expressions, many in one program, run them, and return ops and values."""
    computed: dict[str, tuple[list[str], Any]] = {}
    texts = list(table)
    for start in range(0, len(texts), TOGETHER):
        computed |= run_together(texts[start : start + TOGETHER], modules)
    return computed


def run_together(texts: Iterable[str], modules: dict[str, Any]) -> dict[str, tuple[list[str], Any]]:
    with own_programs() as (main, startup):
        names = {"np": np, "paddle": rowlock, **modules}
        for name, (shape, dtype) in expressions.SHAPES.items():
            names[name] = fluid.data(name, shape, dtype)
        rows = expressions.build(texts, main.global_block(), names)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        fetched = exe.run(main, feed=expressions.arrays(), fetch_list=[out for _, _, out in rows])
    return {text: (ops, value) for (text, ops, _), value in zip(rows, fetched, strict=True)}


@pytest.mark.parametrize(
    ("file", "modules"),
    [
        ("expressions.json", {"L": fluid.layers}),
        ("expressions_2x.json", {"F": rowlock.nn.functional}),
    ],
)
def test_expressions_are_paddles(file: str, modules: dict[str, Any]) -> None:
    table = json.loads((REFERENCE / file).read_text())
    wrong = []
    composed = expressions.listed(expressions.OTHER_OPS)
    if file == "expressions_2x.json":
        rowlock.enable_static()
    for text, (ops, value) in run(table, modules).items():
        their_ops, dtype, shape, elements = table[text]
        compared = their_ops and text not in composed
        if compared and text.partition("(")[0] not in COMPOSED and ops != their_ops:
            wrong.append(f"{text}: {ops} instead of {their_ops}")
        expected = np.array(elements, dtype).reshape(shape)
        agrees = value.dtype == dtype and value.shape == (tuple(shape) or (1,))
        if not agrees or not np.allclose(value, expected, rtol=2e-5, atol=1e-6, equal_nan=True):
            wrong.append(f"{text}: {value!r} instead of {expected!r}")
    assert not wrong, "\n".join(wrong)
