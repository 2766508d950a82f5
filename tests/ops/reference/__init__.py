"""Plain float64 NumPy for every op, written apart from the declarations: one file a family.

A reference takes operands by slot (a list where the slot takes any number) and attributes, and returns
the outputs it vouches for by slot::

    @reference("mul")
    def mul(ins, attrs):
        return {"Out": ins["X"] @ ins["Y"]}
"""

from __future__ import annotations

import importlib
import pkgutil

from .registry import REFERENCE, reference

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["REFERENCE", "reference"]
