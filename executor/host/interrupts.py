"""Restore an interrupt (Ctrl-C) that a wait of Python or of Ray has turned into another error."""

from __future__ import annotations

from types import TracebackType


class _Interruptible:
    """A context that raises as it is what a signal's handler raised in a wait inside.

    Where a handler raises before a condition's wait (a thread's start waits for its event) has its lock again,
    or while a thread is joined that just ends, Python releases a lock that is not taken, and that RuntimeError
    is raised. Ray's compiled code may return a result all the same, which Python reports as a SystemError.
    """

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, SystemError) and error.__cause__ is not None:
            raise error.__cause__ from None
        if isinstance(error, RuntimeError) and isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None


interruptible = _Interruptible()
