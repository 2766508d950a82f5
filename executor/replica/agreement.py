"""Encode and describe the step and collective that a rank has reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

NO_STEP = -1
_DONE_SHIFT = 32


def pack_step(step: int, done: int) -> int:
    """Return one number for a step and for how many were done before: ranks at different moments stop.

    The step tells a message that was missed or came twice, the count a rank that wrote more or less than
    the others.
    """
    return done << _DONE_SHIFT | step


def format_step(at: int) -> str:
    """Return a moment in words, to stand behind what happens then (nothing for ``NO_STEP``)."""
    if at < 0:
        return ""
    step, done = at & (1 << _DONE_SHIFT) - 1, at >> _DONE_SHIFT
    return f" in step {step}" + (f" ({done} done)" if done else "")


def named(ranks: Sequence[int]) -> str:
    """Return ``rank 3``, or ``ranks [0, 2]``."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {list(ranks)}"


def mismatch_message(text_by_rank: Mapping[int, str]) -> str:
    """Return the sentence for ranks that came for different things."""
    by_text: dict[str, list[int]] = {}
    for rank, text in text_by_rank.items():
        by_text.setdefault(text, []).append(rank)
    text = "; ".join(f"{named(ranks)} came for {text}" for text, ranks in by_text.items())
    return f"a rank came for another collective than the others: {text}"
