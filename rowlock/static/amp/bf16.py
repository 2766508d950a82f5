"""``paddle.static.amp.bf16``: mixed precision in bfloat16, which needs no loss scaling."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ...executor.driver.mixed_precision import (
    OptimizerWithMixedPrecision,
    cast_model,
    cast_parameters,
    checked_lists,
)
from ...executor.feed.scope import Scope
from ...graph.program.program import Program
from ...graph.training.amp.lists import AutoMixedPrecisionLists, AutoMixedPrecisionListsBF16
from ...graph.training.amp.optimizer import Scaling
from ...graph.training.amp.rewrite import Rules, fp16_guard
from ...graph.training.optimizer.base import Optimizer
from ...strategies.types import VarType

bf16_guard = fp16_guard


class OptimizerWithMixedPrecisionBF16(OptimizerWithMixedPrecision):
    """The decorated optimizer; its ``amp_init`` names the test program's switch as Paddle does here."""

    def amp_init(  # type: ignore[override]
        self,
        place: Any,
        scope: Scope | None = None,
        test_program: Program | None = None,
        use_bf16_test: bool = False,
    ) -> None:
        """Cast, at level O2, parameters to bfloat16; call it when the startup program has run."""
        super().amp_init(place, scope, test_program, use_bf16_test)


def decorate_bf16(
    optimizer: Optimizer,
    amp_lists: AutoMixedPrecisionLists | None = None,
    use_pure_bf16: bool = False,
    use_bf16_guard: bool | None = None,
) -> OptimizerWithMixedPrecisionBF16:
    """Return an optimizer that trains in bfloat16; ``use_pure_bf16`` is level O2.

    Raises:
        InvalidType: another thing than an optimizer or lists.
        InvalidArgument: the optimizer is decorated already.
    """
    guard = use_pure_bf16 and (use_bf16_guard is None or use_bf16_guard)
    level = "O2" if use_pure_bf16 else "O1"
    lists = AutoMixedPrecisionListsBF16() if amp_lists is None else checked_lists(amp_lists)
    return OptimizerWithMixedPrecisionBF16(
        optimizer, Rules(lists, VarType.BF16, level, guard, eager=False), Scaling()
    )


def cast_model_to_bf16(
    program: Program,
    startup_prog: Program | None = None,
    amp_lists: AutoMixedPrecisionLists | None = None,
    use_bf16_guard: bool = True,
) -> set[str]:
    """Rewrite a program's forward pass; returns the parameters to give to ``cast_parameters_to_bf16``."""
    return cast_model(program, amp_lists, use_bf16_guard, VarType.BF16)


def cast_parameters_to_bf16(
    place: Any,
    program: Program,
    scope: Scope | None = None,
    to_bf16_var_names: Collection[str] | None = None,
) -> None:
    """Cast parameters in a scope; without names those that the program has in bfloat16."""
    cast_parameters(program, scope, to_bf16_var_names, VarType.BF16, {})


def rewrite_program_bf16(
    main_prog: Program, amp_lists: AutoMixedPrecisionLists | None = None
) -> None:
    """Rewrite a program's forward pass by the lists alone; parameters stay float32."""
    cast_model(main_prog, amp_lists, False, VarType.BF16, "O1")


__all__ = [
    "AutoMixedPrecisionListsBF16",
    "OptimizerWithMixedPrecisionBF16",
    "bf16_guard",
    "cast_model_to_bf16",
    "cast_parameters_to_bf16",
    "decorate_bf16",
    "rewrite_program_bf16",
]
