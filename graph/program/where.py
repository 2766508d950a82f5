"""Find the line of the user's program that built an operator."""

from __future__ import annotations

import contextlib
import os
import sys

_PACKAGE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
_TYPED = ("<ipython-input", "<stdin>", "<python-input", "<doctest")  # typed code has no file
_USERS = os.path.join(_PACKAGE, "demo.py")  # builds a program like a user's script


def user_line() -> str:
    """Return ``"file.py:12, in train"`` for the innermost caller outside the package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _stands_between(frame.f_code.co_filename):
        frame = frame.f_back
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno}, in {code.co_name}"


def user_frames() -> int:
    """Return how many frames lie between the caller and the user's code, for ``warnings.warn``.

    A caller that the user called directly gets 1, so ``stacklevel=user_frames() + 1`` names the user's line.
    """
    frame, count = sys._getframe(1), 0
    while frame.f_back is not None and is_ours(frame.f_code.co_filename):
        frame, count = frame.f_back, count + 1
    return count


def _stands_between(path: str) -> bool:
    """Tell whether a frame is of this package, or leads out of a context of its own."""
    return is_ours(path) or path == contextlib.__file__


def called_by_user() -> bool:
    """Tell whether the caller of this function was called from outside the package."""
    return not is_ours(sys._getframe(2).f_code.co_filename)


def is_ours(path: str) -> bool:
    """Tell whether a file is of this package."""
    if path.startswith("<"):
        return not path.startswith(_TYPED)
    return path.startswith(_PACKAGE + os.sep) and path != _USERS
