"""Find the line of the user's program that built an operator."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from types import CodeType

_PACKAGE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
_TYPED = ("<ipython-input", "<stdin>", "<python-input", "<doctest")  # typed code has no file
_INSTALLED = {"site-packages", "dist-packages"}
_USERS = os.path.join(_PACKAGE, "demo.py")  # builds a program like a user's script


def user_line() -> str:
    """Return ``"file.py:12, in train"`` for the innermost caller outside the package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _stands_between(frame.f_code.co_filename):
        frame = frame.f_back
    return _line(frame.f_code, frame.f_lineno)


def raising_line(error: BaseException) -> str | None:
    """Return the innermost line outside all packages that an error came through, if there is one."""
    trace, line = error.__traceback__, None
    while trace is not None:
        code = trace.tb_frame.f_code
        if not is_ours(code.co_filename) and not _INSTALLED.intersection(
            code.co_filename.split(os.sep)
        ):
            line = _line(code, trace.tb_lineno)
        trace = trace.tb_next
    return line


def _line(code: CodeType, number: int) -> str:
    return f"{_file(code.co_filename)}:{number}, in {code.co_name}"


def _file(path: str) -> str:
    """Return a file's path, or the label of a notebook's cell, whose file has a number for a name."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    label = getattr(getattr(shell, "compile", None), "format_code_name", None)  # IPython 8 has it
    cell = label(path) if label is not None else None
    return " ".join(cell) if cell else path


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's code that led here."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and _stands_between(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


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
