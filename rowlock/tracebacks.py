"""Tracebacks that end at the user's line, without the frames of this package.

Only the printed traceback of an uncaught error changes, in a terminal and in IPython; debuggers, tests and
``except`` get all frames. ``ROWLOCK_TRACEBACK=full`` in the environment shows them everywhere.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Any

from .graph.program.where import is_ours
from .strategies.errors import RowlockError

SWITCH = "ROWLOCK_TRACEBACK"
_SHORTENED = (RowlockError, KeyboardInterrupt)


def install() -> None:
    """Show the user's frames of Rowlock's errors and of Ctrl-C from now on, also in a running IPython."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        previous(kind, error, shorten(error, trace))

    sys.excepthook = hook
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        shell.set_custom_exc(_SHORTENED, _show)


def shorten(error: BaseException, trace: TracebackType | None) -> TracebackType | None:
    """Return the user's part of an error's traceback, and take the rest from it and its causes.

    Other errors than Rowlock's and Ctrl-C keep all, and so do those in which no user's frame is.
    """
    if not isinstance(error, _SHORTENED) or os.environ.get(SWITCH) == "full":
        return trace
    short = _of_user(trace)
    if short is None:
        return trace
    error.__traceback__ = short
    cause = error.__cause__
    while cause is not None and not _is_users(cause):
        cause = cause.__cause__
    error.__cause__ = cause  # the text of others is in the error's own
    return short


def _is_users(error: BaseException) -> bool:
    """Tell whether the user's code raised an error, such as a reader's."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    path = trace.tb_frame.f_code.co_filename if trace is not None else "<"
    return not is_ours(path) and "site-packages" not in path


def _of_user(trace: TracebackType | None) -> TracebackType | None:
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    ours = [is_ours(frame.tb_frame.f_code.co_filename) for frame in frames]
    if all(ours) or not any(ours):
        return None
    begin = ours.index(False)  # before it may be ``python -m rowlock.alias script.py``
    end = ours.index(True, begin) if True in ours[begin:] else len(frames)
    short = None
    for frame in reversed(frames[begin:end]):
        short = TracebackType(short, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return short


def _show(
    shell: Any, kind: type[BaseException], error: BaseException, trace: Any, tb_offset: Any = None
) -> None:
    shell.showtraceback((kind, error, shorten(error, trace)), tb_offset=tb_offset)
