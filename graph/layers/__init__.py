"""Layers: functions that append ops, one file a family.

* Operators and subscripts of variables: ``graph/layers/operators.py``, ``graph/layers/subscript.py``.
  Functions of Paddle 2.x built from layers: ``rowlock/functions/``, ``rowlock/nn/``; of ``fluid.layers``:
  ``rowlock/fluid/layers/composed.py``. Their numbers: ``tests/reference/expressions.py``, which both
  Paddles and ``tests/rowlock/test_expressions.py`` run.
"""

# These give Variable its operators, and helpers the weights that are computed.
from . import operators, subscript, weight_norm

__all__ = ["operators", "subscript", "weight_norm"]
