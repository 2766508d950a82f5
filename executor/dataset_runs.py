"""Run a program over a dataset of files: what ``Executor.train_from_dataset`` does."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..graph.program.variable import Variable
from ..strategies.errors import InvalidArgument, InvalidState, InvalidType, InvalidValue
from .device.tensor import Tensor
from .feed.fetches import fetch_names_of
from .feed.reader import Batch

Step = Callable[[Batch, Sequence[str]], list[Any]]
_NAMES = {"float32": "float", "float64": "double", "int64": "int64_t", "int32": "int"}


class BatchSource(Protocol):
    """A dataset, as far as a pass needs it."""

    def batches(self, threads: int = 0, least: int = 1) -> Iterator[Batch]:
        """Yield the feeds of one pass."""


class FetchHandler:
    """Is shown values while a pass runs: override :meth:`handler`.

    Args:
        var_dict: variables by the name under which ``handler`` gets their values.
        period_secs: seconds between two calls; it is called behind the step that comes next.
    """

    def __init__(
        self, var_dict: Mapping[str, Variable] | None = None, period_secs: float = 60
    ) -> None:
        if not isinstance(var_dict, Mapping) or not var_dict:
            raise InvalidArgument("FetchHandler needs var_dict, variables by name.")
        self.var_dict = var_dict
        self.period_secs = period_secs

    def handler(self, res_dict: Mapping[str, Any]) -> None:
        """Take the values of a step, arrays by name; writes the first row of each to stdout."""
        for name, value in res_dict.items():
            sys.stdout.write(f"{name}[0]: {value[0]} ")
        sys.stdout.write("\n")

    @staticmethod
    def help() -> None:
        """Print how a handler is written."""
        print(
            "class ShowLoss(fluid.executor.FetchHandler):\n"
            "    def handler(self, res_dict):\n"
            '        print("loss", res_dict["loss"])\n\n'
            'exe.train_from_dataset(..., fetch_handler=ShowLoss({"loss": loss}, period_secs=10))'
        )


@dataclass
class Printing:
    """What a pass prints: values each so many batches, under headings."""

    names: Sequence[str]
    headings: Sequence[str]
    period: int

    @classmethod
    def of(cls, fetch_list: Any, fetch_info: Any, print_period: int) -> Printing:
        """Return what the arguments of ``train_from_dataset`` say.

        Raises:
            InvalidArgument: there are more or fewer headings than variables.
            InvalidValue: the period is not above 0.
        """
        names, updates = fetch_names_of(fetch_list)
        if updates:
            raise InvalidType("train_from_dataset: fetch_list takes variables, no optimize ops.")
        headings = [fetch_info] if isinstance(fetch_info, str) else list(fetch_info or ())
        if len(headings) != len(names):
            raise InvalidArgument(
                f"train_from_dataset: fetch_list names {len(names)} variable(s), fetch_info {len(headings)}; "
                f"it needs a heading for each."
            )
        if not isinstance(print_period, int) or print_period < 1:
            raise InvalidValue(f"print_period must be a number above 0, got {print_period!r}.")
        return cls(names, headings, print_period)

    def show(self, values: Sequence[Any]) -> None:
        """Print the values of a step in Paddle's form."""
        for heading, name, value in zip(self.headings, self.names, values, strict=True):
            sys.stdout.write(shown(heading, name, value))
        sys.stdout.flush()


def shown(heading: str, name: str, value: Any) -> str:
    """Return a value as ``train_from_dataset`` prints it."""
    lod = value.lod() if isinstance(value, Tensor) else []
    array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    levels = ", ".join("{" + ", ".join(map(str, level)) + "}" for level in lod)
    items = array.reshape(-1)
    numbers = " ".join(f"{item:g}" if items.dtype.kind == "f" else str(int(item)) for item in items)
    return (
        f"{heading}\t{name}\t\tlod: {{{levels}}}\n\tdim: {', '.join(map(str, array.shape))}\n"
        f"\tlayout: NCHW\n\tdtype: {_NAMES.get(str(array.dtype), str(array.dtype))}\n\tdata: [{numbers}]\n\t\n"
    )


@dataclass
class DatasetPass:
    """One pass of a program over a dataset."""

    step: Step
    printing: Printing
    handler: FetchHandler | None = None
    debug: bool = False
    _due: float = field(default=0.0, init=False)

    def run(self, dataset: BatchSource, threads: int, least: int) -> None:
        """Run a step for each batch; a batch that cannot be read ends the pass with its error."""
        began = time.monotonic()
        self._due = began + (self.handler.period_secs if self.handler is not None else 0)
        steps = samples = 0
        for steps, batch in enumerate(dataset.batches(threads, least), 1):
            self._step(steps - 1, batch)
            samples += rows(batch)
        if self.debug:
            took = time.monotonic() - began
            rate = samples / took if took else 0.0
            print(f"{steps} steps, {samples} samples in {took:.3f} s: {rate:.0f} samples/s")

    def _step(self, number: int, batch: Batch) -> None:
        names = list(self.printing.names) if number % self.printing.period == 0 else []
        handled: list[tuple[str, str]] = []
        if self.handler is not None and time.monotonic() >= self._due:
            handled = [(key, variable.name) for key, variable in self.handler.var_dict.items()]
        values = self.step(batch, [*names, *(name for _, name in handled)])
        if names:
            self.printing.show(values[: len(names)])
        if handled and self.handler is not None:
            arrays = [np.asarray(value) for value in values[len(names) :]]
            self.handler.handler(dict(zip((key for key, _ in handled), arrays, strict=True)))
            self._due = time.monotonic() + self.handler.period_secs


def rows(batch: Batch) -> int:
    """Return how many samples a batch has."""
    value = next(iter(batch.values()))
    if isinstance(value, Tensor):
        return len(value.recursive_sequence_lengths()[0])
    return len(value)


def check_dataset(dataset: Any) -> None:
    """Raise where ``dataset`` is none.

    Raises:
        InvalidState: it is None.
        InvalidType: it is something else.
    """
    if dataset is None:
        raise InvalidState("train_from_dataset needs a dataset: fluid.DatasetFactory makes one.")
    if not callable(getattr(dataset, "batches", None)):
        raise InvalidType(
            f"train_from_dataset takes a dataset of fluid.DatasetFactory, got {type(dataset).__name__}."
        )
