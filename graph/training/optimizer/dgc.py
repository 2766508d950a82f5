"""Deep gradient compression: Lin et al., arXiv 1712.01887."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ....strategies.errors import InvalidType, InvalidValue
from ....strategies.types import VarType
from ...layers.helper import LayerHelper
from ...layers.initializer import ConstantInitializer
from ...layers.regularizer import L1DecayRegularizer, L2DecayRegularizer, append_regularization_ops
from ...ops.dgc import CLIP, DGC
from ...program.block import Block
from ...program.operator import Operator
from ...program.role import ROLE_VAR, OpRole
from ...program.variable import Parameter, Variable
from ..clip import GradientClipByNorm, append_gradient_clip
from .base import ParamGrad, ParamGrads
from .methods import MomentumOptimizer

_FEWEST = 16384  # elements of a parameter whose gradient Paddle compresses
_COUNTER = "__g_dgc_counter__"


class DGCMomentumOptimizer(MomentumOptimizer):
    """Momentum that lets only the largest elements of large gradients through, from ``rampup_begin_step`` on.

    Steps count from 0. What is kept back is added up until it is large enough; each place keeps the momentum of
    its own gradients. ``sparsity`` are the shares kept back, for ``rampup_step`` steps in turn; the last stays.
    Parameters that are not float32, or have fewer than 16384 elements, are updated by plain momentum, their
    gradients clipped in every step. Of the others each place's gradient is clipped, to
    ``clip_norm / sqrt(num_trainers)``, once compression begins. Between CPUs (AllReduce) what is sent travels
    as places and values, where these are less than the gradient.

    Raises:
        InvalidType: ``grad_clip`` is another clip than by norm.
        InvalidValue: a number that cannot work.
    """

    named: Mapping[str, str] = {"Velocity": "_dgc_u_"}

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
        if rampup_begin_step < 0 or rampup_step <= 0:
            raise InvalidValue(
                "DGCMomentum: rampup_begin_step must not be below 0 and rampup_step must be above 0, got "
                f"{rampup_begin_step!r} and {rampup_step!r}."
            )
        if not sparsity or not all(0 <= ratio <= 1 for ratio in sparsity):
            raise InvalidValue(
                f"DGCMomentum: sparsity must list ratios from 0 to 1, got {sparsity!r}."
            )
        options = (use_nesterov, regularization, grad_clip, name)
        super().__init__(learning_rate, momentum, parameter_list, *options)
        self._ramp = {
            "rampup_begin_step": float(rampup_begin_step),
            "rampup_step": float(rampup_step),
            "sparsity": [float(ratio) for ratio in sparsity],
        }
        trainers = 1 if num_trainers is None else num_trainers
        self._clip_norm = grad_clip.clip_norm * trainers**-0.5 if grad_clip else None
        self._compressed: set[str] = set()

    def apply_gradients(self, params_grads: ParamGrads) -> list[Operator]:
        """Append compression, clipping and decay of what is not compressed, and updates, by parameter name."""
        compressed = [pair for pair in params_grads if _is_compressed(pair[0])]
        others = [pair for pair in params_grads if not _is_compressed(pair[0])]
        if others:
            others = append_gradient_clip(others, self._grad_clip)
            others = append_regularization_ops(others, self.regularization)
        if compressed:
            step = _step(compressed[0][0].block.program.global_block())
            compressed = [(p, self._compress(p, grad, step)) for p, grad in compressed]
            self._compressed.update(p.name for p, _ in compressed)
        pairs = sorted([*others, *compressed], key=lambda pair: pair[0].name)
        return self._append_updates(pairs) if pairs else []

    def _compress(self, parameter: Parameter, grad: Variable, step: Variable) -> Variable:
        """Append the ops that say what of a gradient is sent; it meets behind them."""
        block = parameter.block.program.global_block()
        for op in block.ops:  # these gradients meet no more
            op.attrs[ROLE_VAR] = _without(op.attrs.get(ROLE_VAR, []), parameter.name, grad.name)
        self._create_accumulators(block, [parameter])
        for name in ("_dgc_u_", "_dgc_v_"):
            if (name, parameter.name) not in self._accumulators:
                self._add_accumulator(name, parameter)
        helper = LayerHelper("dgc")
        begin = {"rampup_begin_step": self._ramp["rampup_begin_step"]}
        with block.program.role_guard(OpRole.Backward, []):
            if self._clip_norm is not None:
                clip = {**begin, "max_norm": float(self._clip_norm)}
                inputs = {"X": grad, "current_step": step}
                grad = helper.layers(CLIP, "Out", "Out", **inputs, **clip)[0]
        part = helper.new(grad.dtype, stop_gradient=True)
        u, v = (self._get_accumulator(name, parameter) for name in ("_dgc_u_", "_dgc_v_"))
        operands = {"u": u, "v": v, "grad": grad, "param": parameter, "current_step": step}
        decay: Any = parameter.regularizer or self.regularization
        if decay is not None and not isinstance(decay, (L1DecayRegularizer, L2DecayRegularizer)):
            raise InvalidType(
                f"DGCMomentum: the decay of {parameter.name!r} must be L1Decay or L2Decay, got {decay!r}."
            )
        attrs = {
            **self._ramp,
            "m": float(self._attrs["mu"]),
            "use_nesterov": self._attrs["use_nesterov"],
            "regular_coeff": float(decay._regularization_coeff) if decay else 0.0,
            "regular_type": 0 if not decay else 2 if isinstance(decay, L2DecayRegularizer) else 1,
        }
        with block.program.role_guard(OpRole.Backward, [parameter.name, part.name]):
            helper.layers(DGC, "", **operands, **attrs, U_out=u, V_out=v, Grad_out=part)
        return part

    def _create_accumulators(self, block: Block, parameters: list[Parameter]) -> None:
        others = [p for p in parameters if ("_dgc_u_", p.name) not in self._accumulators]
        super()._create_accumulators(block, others)

    def _append_optimize_op(self, block: Block, param_and_grad: ParamGrad) -> Operator:
        parameter, grad = param_and_grad
        if parameter.name not in self._compressed:
            return super()._append_optimize_op(block, param_and_grad)
        rate = self._create_param_lr(param_and_grad)
        inputs = {"Param": parameter, "Grad": grad, "LearningRate": rate}
        return block.append_op("sgd", inputs, {"ParamOut": parameter})


def _step(block: Block) -> Variable:
    """Return the number of the step, from 0 on, which a counter of the program keeps."""
    name = f"{_COUNTER}@STEP"
    if block.has_var(name):
        return block.var(name)
    start = ConstantInitializer(-1.0, force_cpu=True)
    helper = LayerHelper("global_step_counter")
    counter = helper.create_global(_COUNTER, [1], VarType.FP32, start)
    counter.stop_gradient = True
    step = block.create_var(name=name, shape=[1], dtype=VarType.FP32, stop_gradient=True)
    block._prepend_op("increment", {"X": counter}, {"Out": counter}, {"step": 1.0})
    # Before the count goes up: what follows a write to a persistable waits for the commit.
    block._prepend_op("scale", {"X": counter}, {"Out": step}, {"bias": 1.0})
    return step


def _without(marks: list[str], parameter: str, grad: str) -> list[str]:
    """Return pairs of parameters and gradients without one."""
    pairs = zip(marks[::2], marks[1::2], strict=True)
    return [name for pair in pairs if pair != (parameter, grad) for name in pair]


def _is_compressed(parameter: Parameter) -> bool:
    large = abs(math.prod(parameter.shape or ())) >= _FEWEST
    return large and parameter.dtype == VarType.FP32


def _check_clip(grad_clip: Any, num_trainers: int | None) -> None:
    if grad_clip is None:
        return
    if not isinstance(grad_clip, GradientClipByNorm):
        raise InvalidType(
            f"DGCMomentum: grad_clip must be a GradientClipByNorm, got {type(grad_clip).__name__}."
        )
    if num_trainers is None or num_trainers < 1:
        raise InvalidValue(
            f"DGCMomentum: with grad_clip, num_trainers must be an int above 0, got {num_trainers!r}."
        )


__all__ = ["DGCMomentumOptimizer"]
