"""A vote of GPUs on a step, without their hosts: each writes if it has heard from all that they can.

Behind the collectives of a step a GPU offers the step's number, counted on the device, and NCCL adds up what
all offer. A GPU that gets the number times the number of ranks counts the step and sets ``go``, without which
kernels that write what lasts return at once. One that gets anything else offers zero from then on, so the
steps that are queued behind write nothing either.

The sum is a collective of its own: NCCL's kernels that are aborted go on telling their peers that data has
come, so the end of a bucket says nothing about its other parts. A rank that gives up says so in ``given_up``
before it aborts; a number that it offered earlier was offered behind whole collectives. A rank whose kernels
found a wrong operand offers zero, too (``device_assert.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .kernel import CudaKernel
from .runtime import Fork, Runtime, Step

_ONE = (1, 1, 1)
_WORD = "long long*"
OFFER = CudaKernel(
    "offer_step",
    (
        (f"const volatile {_WORD}", "given_up"),
        (f"const {_WORD}", "failed"),
        (f"const {_WORD}", "words"),
        (_WORD, "sum"),
    ),
    "*sum = words[1] || *given_up || *failed ? 0 : words[0] + 1;",
    block=1,
)
DECIDE = CudaKernel(
    "decide_step",
    (
        (_WORD, "words"),
        (f"const {_WORD}", "sum"),
        (_WORD, "go"),
        (f"volatile {_WORD}", "reached"),
        ("int", "ranks"),
    ),
    """
  const long long next = words[0] + 1;
  const bool all = !words[1] && *sum == next * ranks;
  if (all) words[0] = next;
  else words[1] = 1;
  *go = all;
  *reached = words[0];""",
    block=1,
)


class DeviceVote:
    """One rank's part in votes of ``ranks`` GPUs.

    ``go`` is the word (int64, in device memory) that is not 0 while a step may write; ``launched`` counts the
    steps that the host put on the stream.
    """

    def __init__(self, runtime: Runtime, ranks: int) -> None:
        self._runtime, self._ranks = runtime, ranks
        self._memory = runtime.empty(32)
        words = self._memory.view(np.int64)
        self._words, self.sum, self.go = words[:2], words[2:3], words[3:4]  # steps counted, stopped
        self._given_up, self._reached = (runtime.pinned(8).view(np.int64) for _ in range(2))
        self.launched = 0
        self.reset()

    def steps(self, reduce: Fork, failed: Any) -> Sequence[Step]:
        """Return the calls of a vote; ``reduce`` adds up ``sum`` over the ranks, in place.

        ``failed``: a word (int64) that is not 0 if this rank's step went wrong on the GPU.
        """
        launch = self._runtime.launch
        offer = launch(OFFER, _ONE, _ONE, (self._given_up, failed, self._words, self.sum))
        words = (self._words, self.sum, self.go, self._reached, self._ranks)
        return [offer, reduce, reduce.finish, launch(DECIDE, _ONE, _ONE, words)]

    def guarded(self, kernel: CudaKernel, arguments: Sequence[Any]) -> tuple[CudaKernel, list[Any]]:
        """Return a kernel that does nothing in a step that may not write, and its arguments."""
        return kernel.guarded(unless=False), [*arguments, self.go]

    def give_up(self) -> None:
        """Let no later step count; to be called before collectives are aborted."""
        self._given_up[0] = 1

    @property
    def reached(self) -> int:
        """How many steps were counted, as far as the host knows: all before an event that has passed."""
        return int(self._reached[0])

    def reset(self) -> None:
        """Count from 0 again; nothing is under way."""
        self._runtime.synchronize()
        self._memory.fill(0)
        self._runtime.synchronize()
        self._given_up[0] = self._reached[0] = self.launched = 0
