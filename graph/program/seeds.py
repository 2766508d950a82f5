"""The seeds of programs that were given none."""

from __future__ import annotations

import secrets
from weakref import WeakKeyDictionary

from .program import Program

_drawn_seeds: WeakKeyDictionary[Program, int] = WeakKeyDictionary()


def seed_of(program: Program) -> int:
    """Return the program's seed; 0 is drawn once and kept for as long as the program lives."""
    if program.random_seed:
        return program.random_seed
    if program not in _drawn_seeds:
        _drawn_seeds[program] = secrets.randbits(31) | 1
    return _drawn_seeds[program]


def keep_seed(program: Program, copied: Program) -> None:
    """Let a copy of a program draw what the program draws."""
    _drawn_seeds[copied] = seed_of(program)
