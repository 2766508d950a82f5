"""``paddle.version``: the version of Paddle whose 1.x API ``rowlock.fluid`` has."""

import re

from . import __version__ as _own_version
from .strategies.errors import InvalidType, InvalidValue, Unsupported

full_version = "1.8.5"
major, minor, patch = full_version.split(".")
rc = "0"  # programs compare it, or join it with the others, to know which release they run under

__all__ = ["full_version", "major", "minor", "patch", "rc", "require_version", "show"]


def show() -> None:
    """Print the version of Rowlock and the version of Paddle's API."""
    print(f"Rowlock {_own_version}, with the API of PaddlePaddle {full_version}")


def require_version(min_version: str, max_version: str | None = None) -> None:
    """Check that the API's version lies between two versions; ``max_version`` None: no upper bound.

    Raises:
        InvalidType: a version is no str.
        InvalidValue: a version is not one to four numbers with dots between.
        Unsupported: the API is of an older or newer version.
    """
    low = _numbers("min_version", min_version)
    high = None if max_version is None else _numbers("max_version", max_version)
    have = _numbers("full_version", full_version)
    if have < low or (high is not None and have > high):
        bounds = f"at least {min_version}" + (f", at most {max_version}" if max_version else "")
        raise Unsupported(
            f"require_version requires PaddlePaddle {bounds}; rowlock.fluid has the API of {full_version}."
        )


def _numbers(argument: str, version: object) -> tuple[int, ...]:
    if not isinstance(version, str):
        raise InvalidType(f"require_version: {argument} must be a str, got {version!r}.")
    if not re.fullmatch(r"\d+(\.\d+){0,3}", version):
        raise InvalidValue(
            f"require_version: {argument} must be numbers with dots between, such as '1.5.2', got {version!r}."
        )
    numbers = [int(number) for number in version.split(".")]
    return tuple(numbers + [0] * (4 - len(numbers)))
