"""``fluid.contrib.reader``: readers of one trainer of several."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from ...names import publish_definitions
from ...strategies.errors import InvalidArgument

Reader = Callable[[], Iterator[Any]]


def distributed_batch_reader(batch_reader: Reader) -> Reader:
    """Return a reader of every n-th batch, this trainer's own; a last round that lacks batches is left out.

    ``PADDLE_TRAINERS_NUM`` and ``PADDLE_TRAINER_ID`` say how many trainers there are, and which this one is.

    Raises:
        InvalidArgument: the trainer is none of these.
    """
    count = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
    number = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
    if not 0 <= number < count:
        raise InvalidArgument(
            f"distributed_batch_reader: PADDLE_TRAINER_ID is {number}, PADDLE_TRAINERS_NUM {count}: trainers "
            f"are 0 to {count - 1}."
        )

    def batches() -> Iterator[Any]:
        every = iter(batch_reader())
        while len(together := list(islice(every, count))) == count:
            yield together[number]

    return batches


publish_definitions(__name__)
