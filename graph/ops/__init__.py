"""Every operator, declared once: one file a family. Importing this package fills ``registry.OPS``.

Start with ``operands.py`` (a class whose fields are an op's slots and attributes), then ``registry.py`` (what
else a declaration says).
"""

from __future__ import annotations

import importlib
import pkgutil

from ...strategies.garbage import gc_paused

_HELPERS = {"registry", "operands", "expr", "samples", "rules"}

with gc_paused():
    for _module in pkgutil.iter_modules(__path__):
        if _module.name not in _HELPERS:
            importlib.import_module(f"{__name__}.{_module.name}")
