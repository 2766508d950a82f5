"""Weight decay: adds a function of the parameter to its gradient, in place."""

from __future__ import annotations

from typing import Any

from ...strategies.settings_repr import SettingsRepr
from ..program.block import Block
from ..program.scopes import name_scope
from ..program.variable import Parameter, Variable


class WeightDecayRegularizer(SettingsRepr):
    """Base class, also of programs' own: a call returns the variable to add to the gradient."""

    def __call__(self, parameter: Parameter, grad: Variable, block: Block) -> Variable:
        """Append the ops that make the decay term to ``block``, that of the gradient."""
        raise NotImplementedError(
            f"{type(self).__name__} must define __call__(param, grad, block)."
        )


def as_regularizer(weight_decay: Any) -> Any:
    """Return the regularizer that ``weight_decay`` of Paddle 2.x stands for: a number means L2."""
    return L2DecayRegularizer(weight_decay) if isinstance(weight_decay, float) else weight_decay


def _term(block: Block, like: Variable) -> Variable:
    return block.create_var(dtype=like.dtype, shape=like.shape, lod_level=like.lod_level)


class L2DecayRegularizer(WeightDecayRegularizer):
    """The term is ``regularization_coeff`` times the parameter."""

    def __init__(self, regularization_coeff: float = 0.0) -> None:
        self._regularization_coeff = regularization_coeff

    def __call__(self, parameter: Parameter, grad: Variable, block: Block) -> Variable:
        """Append ``scale``."""
        term = _term(block, parameter)
        factor = {"scale": float(self._regularization_coeff)}
        block.append_op("scale", {"X": parameter}, {"Out": term}, factor)
        return term

    def __str__(self) -> str:
        return f"L2Decay, regularization_coeff={self._regularization_coeff:f}"


class L1DecayRegularizer(WeightDecayRegularizer):
    """The term is ``regularization_coeff`` times the sign of the parameter."""

    def __init__(self, regularization_coeff: float = 0.0) -> None:
        self._regularization_coeff = regularization_coeff

    def __call__(self, parameter: Parameter, grad: Variable, block: Block) -> Variable:
        """Append ``sign`` and ``scale``."""
        term = _term(block, parameter)
        block.append_op("sign", {"X": parameter}, {"Out": term})
        factor = {"scale": float(self._regularization_coeff)}
        block.append_op("scale", {"X": term}, {"Out": term}, factor)
        return term

    def __str__(self) -> str:
        return f"L1Decay, regularization_coeff={self._regularization_coeff:f}"


def append_regularization_ops(
    params_grads: list[tuple[Parameter, Variable]], regularization: WeightDecayRegularizer | None
) -> list[tuple[Parameter, Variable]]:
    """Add decay to every gradient in place; a parameter's own regularizer beats the optimizer's."""
    with name_scope("regularization"):
        for parameter, grad in params_grads:
            regularizer = parameter.regularizer or regularization
            if regularizer is not None:
                _add_decay(parameter, grad, regularizer)
    return params_grads


def _add_decay(parameter: Parameter, grad: Any, regularizer: WeightDecayRegularizer) -> None:
    block = grad.block
    with block.program.optimized_guard([parameter, grad]):
        term = regularizer(parameter, grad, block)
        block.append_op("sum", {"X": [grad, term]}, {"Out": grad})


L1Decay = L1DecayRegularizer
L2Decay = L2DecayRegularizer
