"""``fluid.log_helper``: loggers of scripts."""

import logging

from ..names import publish_definitions


def get_logger(name: str, level: int | str, fmt: str | None = None) -> logging.Logger:
    """Return a logger with its own handler to standard error; later calls add no further handler."""
    logger = logging.getLogger(name)
    logger.setLevel(level)
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(fmt))
        logger.addHandler(handler)
    logger.propagate = False
    return logger


publish_definitions(__name__)
