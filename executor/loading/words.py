"""Words of a text that are numbers, read all at once: a step of NumPy for each of their characters."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
LONGEST = 64  # characters of a number: longer words are none
_DIGITS = 19  # of a number that 64 bits hold
_EXACT = 15  # digits of a number that float64 holds, whatever they are
_POWERS = 10.0 ** np.arange(_EXACT + 1)
_BLANK, _LINE, _MINUS, _POINT, _ZERO = 32, 10, 45, 46, 48


class Words:
    """Where the words of a text begin and end, and how many each line has that has any."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._codes = np.frombuffer(text, np.uint8)
        blank = (self._codes <= _BLANK).view(np.int8)
        edges = np.flatnonzero(np.diff(blank, prepend=1, append=1))
        self.begins, self.ends = edges[0::2], edges[1::2]
        lines = np.append(np.flatnonzero(self._codes == _LINE), len(text))
        counts = np.diff(np.searchsorted(self.begins, lines), prepend=0)
        self.counts: Array = counts[counts > 0]

    def word(self, number: int) -> bytes:
        """Return a word."""
        return self._text[self.begins[number] : self.ends[number]]

    def integers(self, numbers: Array) -> Array:
        """Return words as int64; those above it keep their 64 bits.

        Raises:
            ValueError: a word is no whole number.
            OverflowError: it needs more than 64 bits.
        """
        begins, lengths, minus = self._unsigned(numbers)
        values = np.zeros(len(begins), np.uint64)
        odd = (lengths < 1) | (lengths > _DIGITS)
        for k in range(min(_DIGITS, lengths.max(initial=0))):
            inside = lengths > k
            digits = self._at(begins + k) - np.uint8(_ZERO)
            odd |= inside & (digits > 9)
            values = np.where(inside, values * np.uint64(10) + digits, values)
        signed = values.view(np.int64)
        signed[minus] *= -1
        for i in np.flatnonzero(odd):
            value = int(self._plain(numbers[i]))
            signed[i] = value if value < 1 << 63 else np.uint64(value).view(np.int64)
        return signed

    def floats(self, numbers: Array) -> Array:
        """Return words as float32.

        Raises:
            ValueError: a word is no number.
            FloatingPointError: it is too large.
        """
        begins, lengths, minus = self._unsigned(numbers)
        values = np.zeros(len(begins), np.float64)
        digits, decimals, points = np.zeros((3, len(begins)), np.int64)
        odd = (lengths < 1) | (lengths > _EXACT + 1)
        for k in range(min(_EXACT + 1, lengths.max(initial=0))):
            inside = lengths > k
            codes = self._at(begins + k)
            figures = codes - np.uint8(_ZERO)
            point, figure = inside & (codes == _POINT), inside & (figures <= 9)
            odd |= inside & ~point & ~figure
            values = np.where(figure, values * 10 + figures, values)
            digits += figure
            decimals += figure & (points > 0)
            points += point
        odd |= (digits < 1) | (points > 1) | (digits > _EXACT)
        values /= _POWERS[np.minimum(decimals, _EXACT)]
        values[minus] *= -1
        for i in np.flatnonzero(odd):  # exponents, infinities, many digits
            values[i] = float(self._plain(numbers[i]))
        with np.errstate(over="raise"):
            return values.astype(np.float32)

    def _unsigned(self, numbers: Array) -> tuple[Array, Array, Array]:
        """Return where words begin behind their sign, how long they are from there, and which have one."""
        begins = self.begins[numbers]
        minus = self._at(begins) == _MINUS
        begins = begins + minus
        return begins, self.ends[numbers] - begins, minus

    def _at(self, places: Array) -> Array:
        return self._codes[np.minimum(places, len(self._codes) - 1)]

    def _plain(self, number: int) -> bytes:
        """Return a word that Python may read as a number: it would skip underscores."""
        word = self.word(number)
        if b"_" in word or len(word) > LONGEST:
            raise ValueError("a word is no number")
        return word
