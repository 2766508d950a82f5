"""Sources that are translated to LLVM's language do what Python does with them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from rowlock.executor.codegen import native
from rowlock.executor.codegen.compiler import object_code
from rowlock.executor.codegen.translation import Module

DIVIDED = """
def run(words):
    x, y, out, n = i64(words[0]), i64(words[1]), i64(words[2]), words[3]
    for i in range(n):
        for j in range(n):
            out[2 * (i * n + j)], out[2 * (i * n + j) + 1] = x[i] // y[j], x[i] % y[j]
"""
CHOSEN = """
def run(words):
    x, y, out, n = i64(words[0]), i64(words[1]), i64(words[2]), words[3]
    for i in range(n):
        low, high = min(x[i], y[0]), max(x[i], 3)
        out[i] = low if 0 <= x[i] < 5 and not (x[i] == 2 or x[i] == 3) else -high
        out[i] += (x[i] > 1) & (x[i] <= 4) | (x[i] != y[0])
"""
ENDED = """
def first_above(x, n, limit):
    for i in range(n):
        if x[i] > limit:
            return i
    return n

def run(words):
    x, y, out, n = i64(words[0]), i64(words[1]), i64(words[2]), words[3]
    out[0] = first_above(x, n, 2)
    out[1] = first_above(x, n, 100)
    i, total = 0, 0
    while i < n and x[i] != 100:
        i += 1
        if x[i - 1] < 0:
            continue
        if x[i - 1] == 5:
            break
        total += x[i - 1]
    out[2], out[3] = i, total
    for i in range(n - 1, -1, -2):
        out[4 + i] = i
    for i in range(n, 2):
        out[4] = 100
"""
MIXED = """
def half_of(v):
    return v / 2

def run(words):
    x, y, out, n = i64(words[0]), f64(words[1]), f64(words[2]), words[3]
    for i in range(n):
        out[i] = half_of(x[i]) + half_of(y[i]) + (1 if y[i] < 0 else y[i] * 0.5)
    for v in range(2):
        t = v
    t = y[0] * 3.0
    for v in range(2):
        t = y[v]
        out[v] = out[v] + t - v
"""


def results(source: str, *arrays: np.ndarray) -> list[np.ndarray]:
    """Return an array of 64 zeros as the source writes it: compiled, and by Python."""
    outputs = [np.zeros(64, arrays[-1].dtype) for _ in range(2)]
    n = len(arrays[0])
    every = [*arrays, outputs[0]]
    native.launch(source, [*(a.ctypes.data for a in every), n], *every)()
    names: dict[str, Any] = {"i64": lambda a: a, "f64": lambda a: a}
    exec(source, names)
    with np.errstate(divide="ignore"):
        names["run"]([*arrays, outputs[1], n])
    return outputs


WHOLE = np.array([-7, -3, -1, 0, 1, 2, 5])


@pytest.mark.parametrize("source", [DIVIDED, CHOSEN, ENDED], ids=["divided", "chosen", "ended"])
def test_whole_numbers(source: str) -> None:
    divisors = np.array([-4, -1, 1, 3, 7]) if source != DIVIDED else np.array([-4, 0, -1, 1, 3])
    compiled, expected = results(source, WHOLE[-5:], divisors)
    np.testing.assert_array_equal(compiled, expected)
    assert np.any(expected)


def test_numbers_of_several_types_and_names_that_are_used_again() -> None:
    compiled, expected = results(MIXED, WHOLE, WHOLE / 4)
    np.testing.assert_array_equal(compiled, expected)


@pytest.mark.parametrize("kind", ["int32", "uint8", "uint32", "int64"])
def test_types_of_integers(kind: str) -> None:
    source = f"""
def run(words):
    x, out = i64(words[0]), i64(words[1])
    for i in range(words[2]):
        out[i] = np.int64(np.{kind}(x[i])) + (np.{kind}(x[i]) >> np.{kind}(1)) - (x[i] < np.{kind}(5))
"""
    x, out = np.array([-(2**40) - 3, -1, 0, 4, 2**31 + 7, 255]), np.zeros(6, np.int64)
    native.launch(source, [x.ctypes.data, out.ctypes.data, 6], x, out)()
    cut = x.astype(kind).astype(np.int64)
    np.testing.assert_array_equal(out, cut + (cut >> 1) - (x < 5))


def test_what_the_first_condition_excludes_is_not_read() -> None:
    source = """
def run(words):
    x, out = i64(words[0]), i64(words[1])
    out[0] = words[0] != 0 and x[0] == 1
    out[1] = x[0] if words[0] != 0 else 7
"""
    out = np.full(2, 9)
    native.launch(source, [0, out.ctypes.data], out)()
    assert out.tolist() == [0, 7]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("x = [1]", r"no compiled form of \[1\]"),
        ("x = sorted(words)", r"no compiled form of sorted\(words\)"),
        ("x = np.pi", r"no compiled form of np.pi"),
        ("with words: pass", "no compiled form of with words"),
        ("store(2, 0, 1)", r"no compiled form of store\(2, 0, 1\)"),
        ("x = y", "y has no type here"),
        ("if words[0]: x = 1\n    else: x = 1.0\n    y = x", "x has no type here, or several"),
        ("x = 1\n    for i in range(3):\n        x = x + 0.5", "x has another type"),
    ],
)
def test_what_has_no_compiled_form_is_named(line: str, text: str) -> None:
    with pytest.raises(NotImplementedError, match=text):
        object_code(f"def run(words):\n    {line}\n", "run", "symbol")


@pytest.mark.parametrize("line", ["y = x", "y = i64(words[3])\n    overlap(y, x)"])
def test_pointers_of_different_names_lead_apart_unless_the_source_says_so(line: str) -> None:
    source = f"""
def run(words):
    x, z = i64(words[0]), i64(words[1])
    {line}
    store(y, 0, load(x, 1) + load(z, 2))
"""
    text = Module(source).export("run", "symbol")
    places = re.findall(r"!alias\.scope (!\d+), !noalias (!\d+)", text)
    of_x, of_z, of_y = places
    assert of_x == of_y == of_z[::-1] and of_x != of_z


def test_a_pointer_that_joins_two_is_in_one_place_with_both() -> None:
    source = """
def run(words):
    a, b, c = i64(words[0]), i64(words[1]), i64(words[2])
    overlap(a, c)
    overlap(b, c)
    store(c, 0, load(a, 0) + load(b, 0))
"""
    text = Module(source).export("run", "symbol")
    assert len(set(re.findall(r"!alias\.scope (!\d+)", text))) == 1
    assert "!noalias" not in text


def test_functions_beside_the_exported_one_have_no_places() -> None:
    source = """
def first(x):
    return load(x, 0)

def run(words):
    x = i64(words[0])
    store(x, 1, first(x))
"""
    with pytest.raises(NotImplementedError, match="no compiled form of load"):
        object_code(source, "run", "symbol")
