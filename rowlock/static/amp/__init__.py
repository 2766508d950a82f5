"""``paddle.static.amp``: mixed precision for programs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...executor.driver.mixed_precision import (
    OptimizerWithMixedPrecision,
    cast_model,
    cast_parameters,
)
from ...executor.feed.scope import Scope
from ...graph.program.program import Program
from ...graph.training.amp.lists import AutoMixedPrecisionLists, low_type
from ...graph.training.amp.rewrite import fp16_guard
from ...strategies.types import VarType
from . import bf16
from .decorator import decorate

CustomOpLists = AutoMixedPrecisionLists


def cast_model_to_fp16(
    program: Program,
    amp_lists: AutoMixedPrecisionLists | None = None,
    use_fp16_guard: bool = True,
    dest_type: Any = VarType.FP16,
    level: str = "O2",
    use_promote: bool = False,
) -> set[str]:
    """Rewrite a program's forward pass; returns the parameters to give to ``cast_parameters_to_fp16``."""
    return cast_model(program, amp_lists, use_fp16_guard, dest_type, level, use_promote)


def cast_parameters_to_fp16(
    place: Any,
    program: Program,
    scope: Scope | None = None,
    to_fp16_var_names: Collection[str] | None = None,
    dest_type: Any = VarType.FP16,
    rewrite_master_weight: bool = False,
    master_weights: Mapping[str, Any] | None = None,
) -> None:
    """Cast parameters in a scope; without names those that the program has in low precision."""
    dtype = low_type(dest_type, "cast_parameters_to_fp16")
    masters = (master_weights or {}) if rewrite_master_weight else {}
    cast_parameters(program, scope, to_fp16_var_names, dtype, masters)


__all__ = [
    "AutoMixedPrecisionLists",
    "CustomOpLists",
    "OptimizerWithMixedPrecision",
    "bf16",
    "cast_model_to_fp16",
    "cast_parameters_to_fp16",
    "decorate",
    "fp16_guard",
]
