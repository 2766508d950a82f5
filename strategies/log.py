"""The logger ``rowlock``: events are logged once, and shown where the user wants to see them.

Warnings are shown unless logging is configured otherwise. Normal events have level INFO: they are shown where
the environment has ``ROWLOCK_LOG=INFO``, or by ``logging.basicConfig(level=logging.INFO)``.
"""

from __future__ import annotations

import logging
import os
import time

LEVEL = "ROWLOCK_LOG"
REPORT_S = 10.0  # between two lines about what is waited for
log = logging.getLogger("rowlock")


def follow_environment() -> None:
    """Show the logger's messages from the level on that the environment's ROWLOCK_LOG names, if it does."""
    level = logging.getLevelNamesMapping().get(os.environ.get(LEVEL, "").upper())
    if level is None:
        return
    log.setLevel(level)
    if not log.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("rowlock: %(message)s"))
        log.addHandler(handler)


class WaitLog:
    """Logs every ten seconds what is waited for, from when it is made."""

    def __init__(self) -> None:
        self._began = self._reported = time.monotonic()

    def look(self, what: str) -> None:
        """Log ``what`` if a line is due."""
        now = time.monotonic()
        if now - self._reported >= REPORT_S:
            self._reported = now
            log.warning("waiting for %s since %.0f s", what, now - self._began)


follow_environment()
