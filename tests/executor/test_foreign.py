"""Calls of C functions in place of NumPy's: the same bits, or the same call where there is no such function."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from rowlock.executor.host.cores import openblas
from rowlock.executor.host.foreign import ForeignCall, as_foreign

rng = np.random.default_rng(3)


def reals(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.skipif(not openblas(), reason="this NumPy multiplies by a library of another build")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("turned", [*product([False, True], repeat=2)])
def test_products_are_those_of_numpy_to_the_bit(dtype: Any, turned: tuple[bool, bool]) -> None:
    for rows, between, columns in ((2, 2, 2), (31, 128, 256), (2, 128, 128), (128, 3, 40)):
        left = (
            reals(between, rows, dtype=dtype).T if turned[0] else reals(rows, between, dtype=dtype)
        )
        right = (
            reals(columns, between, dtype=dtype).T
            if turned[1]
            else reals(between, columns, dtype=dtype)
        )
        out = np.empty((rows, columns), dtype)
        call = as_foreign(partial(np.matmul, left, right, out))
        assert isinstance(call, ForeignCall)
        call()
        np.testing.assert_array_equal(out, np.matmul(left, right))


@pytest.mark.skipif(not openblas(), reason="this NumPy multiplies by a library of another build")
def test_products_write_into_columns_of_a_wider_matrix() -> None:
    wide, left, right = reals(9, 24), reals(9, 40)[:, 8:], reals(32, 10)[:, 2:]
    before, out = wide.copy(), wide[:, 4:12]
    call = as_foreign(partial(np.matmul, left, right, out))
    assert isinstance(call, ForeignCall)
    call()
    np.testing.assert_array_equal(out, np.matmul(left, right))
    np.testing.assert_array_equal(
        np.delete(wide, range(4, 12), 1), np.delete(before, range(4, 12), 1)
    )


def test_copies_and_fills_set_the_bytes_that_numpy_sets() -> None:
    source, to = reals(5, 7), np.empty((5, 7), np.float32)
    copy = as_foreign(partial(np.copyto, to, source))
    assert isinstance(copy, ForeignCall)
    copy()
    np.testing.assert_array_equal(to, source)
    for dtype, value in ((np.float32, 0), (np.int64, -1), (np.bool_, True), (np.uint8, 7)):
        array = np.ones((4, 3), dtype)
        fill = as_foreign(partial(array.fill, value))
        assert isinstance(fill, ForeignCall)
        fill()
        np.testing.assert_array_equal(array, np.full((4, 3), value, dtype))


def test_other_calls_stay_as_they_are() -> None:
    square, line = reals(4, 4), reals(4)
    calls = [
        partial(np.matmul, square, square.T, reals(4, 4)),  # NumPy computes half of that
        partial(np.matmul, square, line, reals(4)),
        partial(np.matmul, reals(1, 4), square, reals(1, 4)),
        partial(np.matmul, reals(3, 4, 4), square, reals(3, 4, 4)),
        partial(np.matmul, reals(4, 4), square.astype(np.float64), np.empty((4, 4))),
        partial(np.matmul, reals(8, 4)[::2], reals(4, 8)[:, ::2], square),
        partial(np.matmul, reals(4, 4), reals(4, 4), square.T),
        partial(np.copyto, square, line),
        partial(np.copyto, square, reals(4, 4).T),
        partial(np.copyto, square, np.ones((4, 4), np.int32), casting="unsafe"),
        partial(np.copyto, square, 1.0),
        partial(square.fill, 1.0),
        partial(reals(4, 8)[:, ::2].fill, 0),
        partial(np.add, square, 1, square),
        square.sum,
    ]
    for call in calls:
        assert as_foreign(call) is call


def test_the_same_call_reads_other_numbers_from_words() -> None:
    memory, to = reals(6, 4), np.zeros((6, 4), np.float32)
    call = as_foreign(partial(np.copyto, to[:2], memory[:2]))
    assert isinstance(call, ForeignCall)
    words = np.array(call.numbers, np.int64)
    reading = call.reading(words)
    longer = as_foreign(partial(np.copyto, to[1:5], memory[1:5]))
    assert isinstance(longer, ForeignCall) and longer.form == call.form
    words[:] = longer.numbers
    reading()
    np.testing.assert_array_equal(to[1:5], memory[1:5])
    assert not to[0].any() and not to[5].any()
