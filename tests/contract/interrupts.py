"""Interrupts at chosen bytecodes of the driver, as Ctrl-C could strike anywhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import rowlock

_ROOT = Path(rowlock.__file__).parent  # whose rooms are links in a checkout
ROOMS = tuple(str(_ROOT / room) for room in ("executor", "cluster"))
# It stands for a driver, which takes up no signals, and whose threads call what streams call.
SIMULATED = str(_ROOT / "executor" / "simulated")


def _simulated(frame: FrameType | None) -> bool:
    """Tell whether a frame is the simulated driver's, or is called from there."""
    while frame is not None and not frame.f_code.co_filename.startswith(SIMULATED):
        frame = frame.f_back
    return frame is not None


class Strike:
    """Raises KeyboardInterrupt before bytecode number ``at`` (0: never) that this thread runs in our files."""

    def __init__(self, at: int = 0) -> None:
        self.at, self.count, self.where = at, 0, ""

    def during(self, call: Callable[[], Any]) -> Any:
        """Call, and be interrupted meanwhile; None if that came out as KeyboardInterrupt."""
        before = sys.gettrace()
        # Python 3.12 takes note of a wish for bytecodes when a trace is set, and not of one that comes later.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(self._trace)
        try:
            return call()
        except KeyboardInterrupt:
            return None
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(ROOMS):
            return None
        if event == "call" and _simulated(frame):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self.count += 1
            if self.count == self.at:
                code = frame.f_code
                self.where = f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}"
                raise KeyboardInterrupt
        return self._trace
