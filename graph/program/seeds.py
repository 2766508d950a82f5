"""Seeds of programs without a ``random_seed``."""

from __future__ import annotations

from secrets import randbits
from weakref import WeakKeyDictionary

from .program import Program

_drawn_seeds: WeakKeyDictionary[Program, int] = WeakKeyDictionary()


def seed_of(program: Program) -> int:
    """Return the program's seed; in place of 0, one drawn once for the life of the program."""
    if program.random_seed:
        return program.random_seed
    if program not in _drawn_seeds:
        _drawn_seeds[program] = randbits(31) | 1
    return _drawn_seeds[program]


def keep_seed(program: Program, copied: Program) -> None:
    """Let a copy of a program draw the same numbers as the program."""
    _drawn_seeds[copied] = seed_of(program)
