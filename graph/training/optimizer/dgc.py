"""Deep gradient compression (Lin et al., arXiv 1712.01887), as far as it compresses nothing yet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....strategies.errors import InvalidType, InvalidValue
from ....strategies.types import VarType
from ...layers.helper import LayerHelper
from ...layers.initializer import ConstantInitializer
from ...layers.regularizer import append_regularization_ops
from ...ops.dgc import RAMPUP_LIMIT
from ...program.operator import Operator
from ...program.program import Block
from ...program.variable import Parameter
from ..clip import GradientClipByNorm, append_gradient_clip
from .base import ParamGrads
from .methods import MomentumOptimizer, require_numbers

_FEWEST = 16384  # elements of a parameter whose gradient Paddle compresses
_COUNTER = "__g_dgc_counter__"


class DGCMomentumOptimizer(MomentumOptimizer):
    """Momentum that compresses gradients from step ``rampup_begin_step`` on, counted from 0.

    Until then it is Paddle's: momentum, whose ``grad_clip`` is for parameters that are never compressed (not
    float32, or fewer than 16384 elements) alone. Compression is not built: if any parameter would be
    compressed, the step ``rampup_begin_step`` fails, and changes nothing.

    Raises:
        InvalidType: ``grad_clip`` is another clip than by norm.
        InvalidValue: a number that cannot work.
    """

    slots = {"_dgc_u_": "Velocity"}  # noqa: RUF012

    def __init__(
        self,
        learning_rate: Any,
        momentum: float,
        rampup_begin_step: int,
        rampup_step: int = 1,
        sparsity: Sequence[float] = (0.999,),
        parameter_list: Any = None,
        use_nesterov: bool = False,
        num_trainers: int | None = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        _check_clip(grad_clip, num_trainers)
        numbers = {"rampup_begin_step": rampup_begin_step, "rampup_step": rampup_step}
        require_numbers("DGCMomentum", momentum=momentum, **numbers)
        if rampup_begin_step < 0 or rampup_step <= 0:
            raise InvalidValue(
                "DGCMomentum: rampup_begin_step must not be below 0 and rampup_step must be above 0, got "
                f"{rampup_begin_step!r} and {rampup_step!r}."
            )
        if not sparsity or not all(0 < ratio <= 1 for ratio in sparsity):
            raise InvalidValue(
                f"DGCMomentum: sparsity must list ratios above 0, up to 1, got {sparsity!r}."
            )
        options = (use_nesterov, regularization, grad_clip, name)
        super().__init__(learning_rate, momentum, parameter_list, *options)
        self._rampup_begin_step = rampup_begin_step

    def apply_gradients(self, params_grads: ParamGrads) -> list[Operator]:
        """Append clipping of what is never compressed, decay and updates, sorted by parameter name."""
        compressed = [pair for pair in params_grads if _is_compressed(pair[0])]
        others = [pair for pair in params_grads if not _is_compressed(pair[0])]
        if others:
            others = append_gradient_clip(others, self._grad_clip)
        pairs = sorted([*others, *compressed], key=lambda pair: pair[0].name)
        pairs = append_regularization_ops(pairs, self.regularization)
        if compressed:
            self._limit_steps(pairs[0][0].block.program.global_block())
        return self._append_updates(pairs) if pairs else []

    def _limit_steps(self, block: Block) -> None:
        """Count steps, and let the first one that is to be compressed fail."""
        helper = LayerHelper("global_step_counter")
        fresh = not block.has_var(_COUNTER)
        start = ConstantInitializer(-1.0, force_cpu=True)
        counter = helper.create_global(_COUNTER, [1], VarType.FP32, start)
        if fresh:
            counter.stop_gradient = True
            block._prepend_op("increment", {"X": counter}, {"Out": counter}, {"step": 1.0})
        limit = {"rampup_begin_step": float(self._rampup_begin_step)}
        step = block.create_var(name=f"{_COUNTER}@STEP", shape=[1], dtype=VarType.FP32)
        # Before the count goes up: what follows a write to a persistable waits for the commit.
        block._prepend_op(RAMPUP_LIMIT, {"X": counter}, {"Out": step}, limit)


def _is_compressed(parameter: Parameter) -> bool:
    large = abs(math.prod(parameter.shape or ())) >= _FEWEST
    return large and parameter.dtype == VarType.FP32


def _check_clip(grad_clip: Any, num_trainers: Any) -> None:
    if grad_clip is None:
        return
    if not isinstance(grad_clip, GradientClipByNorm):
        raise InvalidType(
            f"DGCMomentum: grad_clip must be a GradientClipByNorm, got {type(grad_clip).__name__}."
        )
    if not isinstance(num_trainers, int) or isinstance(num_trainers, bool) or num_trainers < 1:
        raise InvalidValue(
            f"DGCMomentum: with grad_clip, num_trainers must be an int above 0, got {num_trainers!r}."
        )


__all__ = ["DGCMomentumOptimizer"]
