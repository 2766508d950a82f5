"""``fluid.incubate.fleet.parameter_server.pslib``: refused."""

from __future__ import annotations

from typing import NoReturn

from ......strategies.errors import Unsupported


class NoPSLib(Unsupported, AttributeError):
    """A name of PSLib's."""


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    raise NoPSLib(
        f"pslib.{name}: PSLib's servers are not Paddle's open source, and not Rowlock's. Take "
        f"fluid.incubate.fleet.parameter_server.distribute_transpiler, whose servers hold tables larger than a "
        f"trainer (embedding(is_distributed=True))."
    )


__all__: list[str] = []


def __dir__() -> list[str]:
    return []
