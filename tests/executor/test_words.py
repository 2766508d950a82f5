"""Numbers in texts, read all at once, are those that Python reads one by one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rowlock.executor.loading.words import Words

WHOLE = ["0", "-0", "7", "-7", "007", "9223372036854775807", "-9223372036854775808", "1" * 18]
FLOATS = [
    *WHOLE, ".5", "5.", "-.25", "+3", "1e3", "-2.5E-4", "inf", "-inf", "1e-60", "0." + "1" * 30,
    "123456789.125", "-0.0001", "3.4028234663852886e38", "16777217", "0.1", "0.30000001192092896",
]  # fmt: skip


def test_whole_numbers() -> None:
    draw = random.Random(5)
    words = WHOLE + [
        str(draw.randrange(-(1 << 63), 1 << 63) >> draw.randrange(64)) for _ in range(500)
    ]
    text = Words("\t".join(words).encode())
    assert text.integers(np.arange(len(words))).tolist() == [int(word) for word in words]
    above = [1 << 63, (1 << 64) - 1, 10**19]
    text = Words(" ".join(map(str, above)).encode())
    assert text.integers(np.arange(3)).view(np.uint64).tolist() == above


def test_floats() -> None:
    draw = random.Random(6)
    drawn = [
        f"{draw.uniform(-1, 1) * 10 ** draw.randrange(-6, 7):.{draw.randrange(12)}f}"
        for _ in range(500)
    ]
    words = FLOATS + drawn + [repr(draw.gauss(0, 1)) for _ in range(500)]
    values = Words(" ".join(words).encode()).floats(np.arange(len(words)))
    np.testing.assert_array_equal(
        values, np.array([float(word) for word in words]).astype("float32")
    )
    assert np.isnan(Words(b"nan").floats(np.zeros(1, np.int64)))[0]


@pytest.mark.parametrize("word", ["", "-", "a", "1.5", "1_0", "0x1", "1" * 80, "--1", "1-", "٣"])
def test_words_that_are_no_whole_numbers(word: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        Words(word.encode()).integers(np.zeros(1, np.int64))


@pytest.mark.parametrize("word", ["", ".", "-", "1.2.3", "1_0.5", "a", "1e", "5" * 80, "1e300"])
def test_words_that_are_no_floats(word: str) -> None:
    with pytest.raises((ValueError, IndexError, FloatingPointError)):
        Words(word.encode()).floats(np.zeros(1, np.int64))


def test_a_number_of_more_than_64_bits() -> None:
    with pytest.raises(OverflowError):
        Words(str(1 << 64).encode()).integers(np.zeros(1, np.int64))


def test_words_of_lines_are_counted() -> None:
    words = Words(b"\n 1 2\t3\r\n\n4\n5 6")
    assert words.counts.tolist() == [3, 1, 2]
    assert [words.word(i) for i in range(6)] == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert Words(b"").counts.tolist() == [] and Words(b" \n\n").counts.tolist() == []
