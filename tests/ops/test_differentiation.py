"""Derivatives of scalar expressions, against differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rowlock.executor.codegen.array_calls import bind_calls
from rowlock.executor.device.device import Device
from rowlock.graph.ops import expr as e
from rowlock.graph.ops.differentiation import changed, derivable, substituted
from rowlock.graph.ops.slopes import SLOPES

X, Y, WAY = e.argument("x"), e.argument("y"), e.argument("way")
ARITY = dict.fromkeys(
    ("add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "fmod", "remainder"), 2
)
ABOVE_ONE = {"arccosh"}


def evaluated(root: e.Expr, **arrays: Any) -> Any:
    out = np.empty_like(arrays["x"])
    for step in bind_calls(Device(), [(root, out)], arrays):
        step()
    return out


def operands(low: float = 0.2, high: float = 0.9) -> tuple[Any, Any]:
    x, y = np.random.default_rng(3).uniform(low, high, (2, 5))
    return x, y


def check(root: e.Expr, name: str, x: Any, y: Any) -> None:
    change = changed(root, {name: WAY})
    assert change is not None
    h, way = 1e-6, np.linspace(-1, 1, 5)
    near = [{"x": x, "y": y, name: (x if name == "x" else y) + sign * h * way} for sign in (1, -1)]
    expected = (evaluated(root, **near[0]) - evaluated(root, **near[1])) / (2 * h)
    np.testing.assert_allclose(evaluated(change, x=x, y=y, way=way), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("fn", sorted(SLOPES.keys() - {"where"}))
def test_each_function(fn: str) -> None:
    x, y = operands(*((1.2, 1.9) if fn in ABOVE_ONE else ()))
    if ARITY.get(fn) == 2:
        for name in ("x", "y"):
            check(e.call(fn, X, Y), name, x, y)
        check(e.call(fn, X, 0.55), "x", x, y)
    else:
        check(e.call(fn, X), "x", x, y)


COMPOSED: dict[str, Callable[[], e.Expr]] = {
    "quotient": lambda: e.tanh(X * Y) / (1 + e.exp(-X)),
    "choice": lambda: e.where(X > Y, X * X, e.sqrt(X) * Y),
    "power": lambda: (X + 1) ** 2.5 + X**3,
    "shared": lambda: (lambda part: part * part + e.log(part))(X * Y + 1),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_composed_expressions(name: str) -> None:
    root = COMPOSED[name]()
    for operand in ("x", "y") if name != "power" else ("x",):
        check(root, operand, *operands())


def test_what_does_not_change_is_none() -> None:
    assert changed(e.floor(X) * Y, {"x": WAY}) is None
    assert changed(e.where(X > Y, 1, 0), {"x": WAY, "y": WAY}) is None


def test_an_infinity_that_is_not_chosen_stays_out() -> None:
    root = e.where(X > 0, e.log(e.maximum(X, 0)), X)
    change = changed(root, {"x": WAY})
    assert change is not None
    with np.errstate(all="ignore"):
        slope = evaluated(change, x=np.array([-1.0, 2.0]), way=np.array([3.0, 3.0]))
    np.testing.assert_array_equal(slope, [3.0, 1.5])


def test_functions_without_a_rule_are_told() -> None:
    assert derivable((e.tanh(X) + e.floor(Y),))
    assert not derivable((e.tanh(X), e.call("gamma", X)))


def test_operands_are_substituted_where_they_stand() -> None:
    x, y = operands()
    root = substituted(X * X + Y, {"x": Y + 1, "y": X})
    np.testing.assert_allclose(evaluated(root, x=x, y=y), (y + 1) ** 2 + x)
