"""How each op is computed: a folder for each back end, a file for each family of ops as in ``graph/ops``.

Start with ``registry.py``, then ``array/moves.py``: a kernel gets the device and the record of the op's
operands (``graph/ops/operands.py``), and returns the calls of a step. An op that declares an expression of one
element, or a formula of whole arrays, needs none: ``loops/elementwise.py`` and ``formulas.py`` make them for
every back end.

* float16 and bfloat16: ``executor/kernels/array/widened.py`` ``widened`` gives a kernel float32 in their
  place, unless it is registered with ``low`` (it only moves elements, or rounds itself).
  ``graph/lowering/select.py`` ``in_single`` lets libraries take such nodes. Element types are in
  ``strategies/types.py``; ``tests/ops/test_low_precision.py`` runs every op.
"""

from __future__ import annotations

import importlib
import pkgutil

from ...strategies.garbage import gc_paused
from . import formulas

with gc_paused():
    for _module in pkgutil.walk_packages(
        __path__, f"{__name__}."
    ):  # each fills the table of kernels
        importlib.import_module(_module.name)
formulas.register()  # last: where there is no kernel by hand
