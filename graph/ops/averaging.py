"""Sums of a parameter over the steps of a window, from which ModelAverage takes its mean."""

from __future__ import annotations

from .operands import Input, Operands, Output, named
from .registry import define
from .samples import sample
from .shapes import Sized

# Steps after which a sum is put away, so that it adds up numbers of about one size.
MOST_ACCUMULATES = 16384

_SUMS = ("sum_1", "sum_2", "sum_3")
_COUNTS = ("num_accumulates", "old_num_accumulates", "num_updates")


class AverageAccumulates(Operands):
    param: Input = named("param")
    in_sum_1: Input = named("in_sum_1")
    in_sum_2: Input = named("in_sum_2")
    in_sum_3: Input = named("in_sum_3")
    in_num_accumulates: Input = named("in_num_accumulates")
    in_old_num_accumulates: Input = named("in_old_num_accumulates")
    in_num_updates: Input = named("in_num_updates")
    out_sum_1: Output = named("out_sum_1")
    out_sum_2: Output = named("out_sum_2")
    out_sum_3: Output = named("out_sum_3")
    out_num_accumulates: Output = named("out_num_accumulates")
    out_old_num_accumulates: Output = named("out_old_num_accumulates")
    out_num_updates: Output = named("out_num_updates")
    average_window: float = 0.0
    max_average_window: int
    min_average_window: int = 10000


_OPERANDS = "param [3 4], in_sum_1 [3 4], in_sum_2 [3 4], in_sum_3 [3 4]"


def _counts(accumulates: int, updates: int) -> str:
    counts = zip(_COUNTS, (f"table [{accumulates}]", "2:9 [1]", f"table [{updates}]"), strict=True)
    return ", ".join(f"in_{name} {numbers}" for name, numbers in counts)


define(
    "average_accumulates",
    AverageAccumulates,
    Sized(
        ", ".join(
            [
                "param [...]",
                *(f"in_{name} as param [...]" for name in _SUMS),
                *(f"in_{name} int64 [1]" for name in _COUNTS),
            ]
        )
        + " -> "
        + ", ".join(f"out_{name} as in_{name}" for name in (*_SUMS, *_COUNTS)),
        "max_average_window is not None; max_average_window must be given",
        "min_average_window <= max_average_window; "
        "min_average_window must not be above max_average_window",
    ),
    in_place={f"out_{name}": f"in_{name}" for name in (*_SUMS, *_COUNTS)},
    samples=tuple(
        sample(
            _OPERANDS,
            _counts(accumulates, updates),
            average_window=0.6,
            min_average_window=3,
            max_average_window=most,
        )
        for accumulates, updates, most in (
            (1, 1, 100),
            (2, 4, 100),
            (4, 8, 100),
            (8, 20, 9),
            (8, MOST_ACCUMULATES - 1, 9999),
            (8, MOST_ACCUMULATES - 1, 9),
        )
    ),
)
