"""Layers that mark where images are alike, and that take counts of impressions and clicks."""

from __future__ import annotations

from typing import Any

from ...strategies.errors import InvalidValue, require_type
from ..program.variable import Variable
from .arguments import Floats, integers
from .helper import layer


def similarity_focus(input: Floats, axis: int, indexes: Any, name: str | None = None) -> Variable:
    """1 where matrices of [N, A, B, C] are largest in their row and column, else 0; like ``input``.

    Of each matrix at one of ``indexes`` along ``axis`` (1, 2 or 3) the largest is marked, then the largest in
    the rows and columns that are left. He and Lin, "Pairwise word interaction modeling", NAACL 2016, section 6.
    """
    require_type(indexes, list, "similarity_focus: indexes must be a list")
    if axis not in (1, 2, 3) or not indexes:
        raise InvalidValue(
            f"similarity_focus: axis must be 1, 2 or 3 and indexes not empty, got {axis} and {indexes}."
        )
    attrs = {"axis": axis, "indexes": integers(indexes, "indexes", "similarity_focus")}
    return layer("similarity_focus", name, x=input, **attrs)


def continuous_value_model(input: Floats, cvm: Floats, use_cvm: bool = True) -> Variable:
    """Rows of an embedding whose first two columns are counts of impressions and clicks.

    With ``use_cvm`` these become logarithms (of 1 + impressions, and the clicks' less that); else they go.
    As their gradient they get ``cvm`` [N, 2], the counts of the batch, which tables add up.
    """
    return layer("cvm", x=input, cvm=cvm, use_cvm=use_cvm)
