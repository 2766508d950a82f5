"""``paddle.utils``: names of variables, curves, and trying the installation."""

from __future__ import annotations

import importlib
from types import ModuleType

from ..fluid.install_check import run_check
from ..names import publish_listed
from . import plot, unique_name
from .plot import Ploter


def try_import(module_name: str, err_msg: str | None = None) -> ModuleType:
    """Return a module.

    Raises:
        ImportError: it is not installed; ``err_msg`` replaces the sentence that says so.
    """
    try:
        return importlib.import_module(module_name)
    except ImportError:
        message = err_msg or f"{module_name!r} is not installed: pip install {module_name}."
        raise ImportError(message, name=module_name) from None


__all__ = ["Ploter", "plot", "run_check", "try_import", "unique_name"]

publish_listed(__name__)
