"""Data generators: from a user's lines to MultiSlot text, as pipe commands of datasets write it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...strategies.errors import InvalidType, InvalidValue
from .dataset_base import whole_number

Sample = Sequence[tuple[str, Sequence[Any]]]


class DataGenerator:
    """Writes what ``generate_sample`` makes of each line to stdout. A subclass defines it.

    ``generate_batch`` may be defined, too; it is given ``set_batch`` samples (32) at a time.
    """

    def __init__(self) -> None:
        self._proto_info: list[tuple[str, str]] | None = None
        self.batch_size_ = 32

    def set_batch(self, batch_size: int) -> None:
        """Give ``generate_batch`` so many samples at a time.

        Raises:
            InvalidType: this is no whole number.
            InvalidValue: it is not above 0.
        """
        self.batch_size_ = whole_number("set_batch", batch_size)

    def generate_sample(self, line: str | None) -> Callable[[], Iterator[Sample | None]]:
        """Return a function that yields the samples of a line, ``[(name, [value, ...]), ...]`` each.

        None in place of a sample is skipped.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not define generate_sample(line), which returns a function "
            f"that yields samples such as [('words', [1926, 8, 17]), ('label', [1])]."
        )

    def generate_batch(self, samples: list[Sample]) -> Callable[[], Iterable[Sample]]:
        """Return a function that yields the samples to write in place of these."""
        return lambda: samples

    def run_from_stdin(self) -> None:
        """Write the samples of every line of stdin.

        Raises:
            InvalidValue: a sample cannot be written; names the line.
        """
        self._write(enumerate(sys.stdin, 1))

    def run_from_memory(self) -> None:
        """Write the samples of ``generate_sample(None)``."""
        self._write([(0, None)])

    def _write(self, lines: Iterable[tuple[int, str | None]]) -> None:
        batch: list[Sample] = []
        number = 0
        for number, line in lines:
            for sample in self._samples(line)():
                if sample is None:
                    continue
                batch.append(sample)
                if len(batch) == self.batch_size_:
                    self._write_batch(batch, number)
                    batch = []
        if batch:
            self._write_batch(batch, number)

    def _samples(self, line: str | None) -> Callable[[], Iterator[Sample | None]]:
        samples = self.generate_sample(line)
        if not callable(samples):
            raise InvalidType(
                f"{type(self).__name__}.generate_sample must return a function that yields samples, got "
                f"{type(samples).__name__}. Define one inside, and return it without calling it."
            )
        return samples

    def _write_batch(self, batch: list[Sample], line: int) -> None:
        for sample in self.generate_batch(batch)():
            try:
                text = self._gen_str(sample)
            except InvalidValue as error:
                where = f" (a batch that ends at line {line} of stdin)" if line else ""
                raise InvalidValue(f"{error}{where}") from None
            sys.stdout.write(text)

    def _gen_str(self, line: Any) -> str:
        """Return the text of one sample, with its line end."""
        raise NotImplementedError(
            "DataGenerator writes no text: derive from MultiSlotDataGenerator or MultiSlotStringDataGenerator."
        )


class MultiSlotStringDataGenerator(DataGenerator):
    """Writes samples whose values are words; they are not looked at."""

    def _gen_str(self, line: Any) -> str:
        fields = []
        for name, elements in _fields(line):
            if not all(isinstance(element, str) for element in elements):
                raise InvalidValue(f"the values of {name!r} must be str, got {elements!r}.")
            fields.append(" ".join([str(len(elements)), *elements]))
        return " ".join(fields) + "\n"


class MultiSlotDataGenerator(DataGenerator):
    """Writes samples of whole numbers and floats. The first one says which slots there are, in which order."""

    def _gen_str(self, line: Any) -> str:
        fields = _fields(line)
        for name, elements in fields:
            _check_values(name, elements)
        self._take_note(fields)
        return " ".join(" ".join([str(len(e)), *map(str, e)]) for _, e in fields) + "\n"

    def _take_note(self, fields: Sample) -> None:
        """Check names against those of the first sample; a slot with one float is a slot of floats."""
        names = [name for name, _ in fields]
        if self._proto_info is None:
            self._proto_info = [(name, "uint64") for name in names]
        slots = [name for name, _ in self._proto_info]
        if names != slots:
            raise InvalidValue(f"the first sample has the slots {slots}, this one {names}.")
        for i, (name, elements) in enumerate(fields):
            if any(isinstance(element, (float, np.floating)) for element in elements):
                self._proto_info[i] = (name, "float")


def _fields(sample: Any) -> Sample:
    if not isinstance(sample, (list, tuple)):
        raise InvalidValue(
            f"a sample is a list such as [('words', [1926, 8, 17]), ('label', [1])], got {sample!r}."
        )
    for field in sample:
        if not isinstance(field, (list, tuple)) or len(field) != 2:
            raise InvalidValue(f"a sample holds pairs of a name and a list, got {field!r}.")
    return sample


def _check_values(name: Any, elements: Any) -> None:
    if not isinstance(name, str):
        raise InvalidValue(f"the name of a slot must be a str, got {name!r}.")
    if not isinstance(elements, list):
        raise InvalidValue(f"the values of {name!r} must be a list, got {elements!r}.")
    if not elements:
        raise InvalidValue(f"slot {name!r} has no values; write a padding value instead.")
    for element in elements:
        if isinstance(element, bool) or not isinstance(
            element, (int, float, np.integer, np.floating)
        ):
            raise InvalidValue(f"slot {name!r} holds {element!r}, which is neither int nor float.")
