"""Mixed precision in a scope: cast parameters (``amp_init``), and check op lists."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from ...graph.program.block import ProgramBlocks
from ...graph.program.program import Program
from ...graph.training.amp.lists import AutoMixedPrecisionLists, low_type
from ...graph.training.amp.optimizer import MixedPrecision
from ...graph.training.amp.rewrite import Rules, rewrite
from ...strategies.errors import InvalidState, InvalidType, NotInitialized
from ...strategies.types import VarType, to_numpy
from ..feed.scope import Scope, global_scope


class OptimizerWithMixedPrecision(MixedPrecision):
    """The decorated optimizer that users hold."""

    def amp_init(
        self,
        place: Any,
        scope: Scope | None = None,
        test_program: Program | None = None,
        use_fp16_test: bool = False,
        rewrite_master_weight: bool = False,
    ) -> None:
        """Cast, at level O2, parameters to low precision; call it when the startup program has run.

        ``test_program`` is rewritten like the training program (at level O1 only with ``use_fp16_test``).
        With ``rewrite_master_weight`` masters are rounded like the parameters.

        Raises:
            InvalidState: ``minimize`` was not called.
            NotInitialized: the startup program was not run.
        """
        if self._train_program is None:
            raise InvalidState("amp_init: call minimize first.")
        if self._rules is None:
            return
        program, dtype = self._train_program, self._rules.dtype
        masters = self._optimizer._masters if rewrite_master_weight else {}
        cast_parameters(program, scope, self._low_names, dtype, masters)
        if test_program is not None and (self._rules.level == "O2" or use_fp16_test):
            rewrite(test_program, self._rules)


def cast_parameters(
    program: ProgramBlocks,
    scope: Scope | None,
    names: Collection[str] | None,
    dtype: VarType,
    masters: Mapping[str, Any],
) -> None:
    """Cast parameters in a scope (default: the global one) to low precision.

    ``names`` are those to cast; None: those that the program has in that type. The masters given are set to
    the values cast.

    Raises:
        NotInitialized: a parameter has no value.
    """
    scope = global_scope() if scope is None else scope
    if names is None:
        names = [p.name for p in program.all_parameters() if p.dtype == dtype]
    for parameter in program.all_parameters():
        if parameter.name not in names:
            continue
        variable = scope.find_var(parameter.name)
        if variable is None or not variable.get_tensor().initialized:
            raise NotInitialized(
                f"cannot cast {parameter.name!r}: it holds no value. Run the startup program first."
            )
        value = variable.get_tensor().numpy().astype(to_numpy(dtype))
        variable.get_tensor().set(value)
        if parameter.name in masters:
            scope.home(masters[parameter.name].name).get_tensor().set(value.astype(np.float32))


def cast_model(
    program: Program,
    lists: AutoMixedPrecisionLists | None,
    guard: bool,
    dtype: Any,
    level: str = "O2",
    promote: bool = False,
) -> set[str]:
    """Rewrite a program for low precision; returns the parameters to cast before it runs.

    Raises:
        InvalidType: ``program`` is no Program, or ``lists`` are no lists.
        InvalidValue: ``dtype`` is no low precision.
    """
    low = low_type(dtype, "cast_model_to_fp16")
    if not isinstance(program, Program):
        raise InvalidType(f"cast_model_to_fp16 takes a Program, got {type(program).__name__}.")
    return rewrite(program, Rules(checked_lists(lists), low, level, bool(guard), bool(promote)))


def checked_lists(lists: Any) -> AutoMixedPrecisionLists:
    """Return the lists given, or Paddle's.

    Raises:
        InvalidType: something else was given.
    """
    if lists is None:
        return AutoMixedPrecisionLists()
    if not isinstance(lists, AutoMixedPrecisionLists):
        raise InvalidType(
            f"amp_lists must be static.amp.CustomOpLists(...), got {type(lists).__name__}."
        )
    return lists
