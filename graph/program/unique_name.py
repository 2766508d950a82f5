"""Names for things the user did not name: ``fc_0``, ``fc_0.w_0``, ``tmp_3``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class UniqueNameGenerator:
    """Counts each key from zero; ``prefix`` stands before every name it makes."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.ids: defaultdict[str, int] = defaultdict(int)

    def __call__(self, key: str) -> str:
        number = self.ids[key]
        self.ids[key] += 1
        return f"{self.prefix}{key}_{number}"


generator = UniqueNameGenerator()


def generate(key: str) -> str:
    """Return ``key`` with the next number of its own counter, such as ``fc_0``."""
    return generator(key)


def switch(
    new_generator: UniqueNameGenerator | None = None, new_para_name_checker: None = None
) -> tuple[UniqueNameGenerator, None]:
    """Install a generator (a fresh one by default) and return the one it replaces.

    Paddle returns beside it what checks the names of parameters in imperative mode, which is not here: None.
    """
    global generator
    old, generator = generator, new_generator or UniqueNameGenerator()
    return old, None


@contextmanager
def guard(new_generator: UniqueNameGenerator | str | bytes | None = None) -> Iterator[None]:
    """Count from zero inside the block; a string becomes the prefix of every name made there."""
    if isinstance(new_generator, bytes):
        new_generator = new_generator.decode()
    if isinstance(new_generator, str):
        new_generator = UniqueNameGenerator(new_generator)
    old, _ = switch(new_generator)
    try:
        yield
    finally:
        switch(old)
