"""How each op is computed: a folder for each back end, a file for each family of ops as in ``graph/ops``."""

from __future__ import annotations

import importlib
import pkgutil

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):  # each fills the table of kernels
    importlib.import_module(_module.name)
