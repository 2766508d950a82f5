"""The logger ``rowlock``: events are logged once, and shown where the user wants to see them.

Warnings are shown unless logging is configured otherwise. Normal events have level INFO: they are shown where
the environment has ``ROWLOCK_LOG=INFO``, or by ``logging.basicConfig(level=logging.INFO)``.
"""

from __future__ import annotations

import logging
import os

LEVEL = "ROWLOCK_LOG"
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


follow_environment()
