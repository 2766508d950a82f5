"""Gradient clipping, and clipping of errors during the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...strategies.errors import InvalidType, require_type
from ...strategies.settings_repr import SettingsRepr
from ...strategies.types import VarType
from ..layers.helper import LayerHelper, layer
from ..layers.shape import cast, fill_constant
from ..program.block import Block, ProgramBlocks
from ..program.program import Program, default_main_program
from ..program.role import ROLE_VAR, OpRole
from ..program.scopes import name_scope
from ..program.variable import Parameter, Variable

ParamGrads = list[tuple[Parameter, Variable]]


class GradientClipBase(SettingsRepr):
    """Base class, also of clips that programs write: ``_static_clip`` returns the pairs with clipped gradients.

    ``need_clip(parameter)`` tells whether a parameter's gradient is clipped, and counts in a global norm (None:
    all are, but those of a ``ParamAttr(need_clip=False)``).

    Raises:
        InvalidType: ``need_clip`` is no function.
    """

    def __init__(self, need_clip: Callable[[Parameter], bool] | None = None) -> None:
        if need_clip is not None and not callable(need_clip):
            raise InvalidType(
                f"need_clip must be a function of a parameter that returns a bool, got {need_clip!r}."
            )
        self._need_clip = need_clip

    def apply(self, params_grads: ParamGrads) -> ParamGrads:
        """Append the ops that clip the gradients that need it; return all pairs, in their order."""
        needs = self._need_clip or (lambda parameter: parameter.need_clip)
        pairs = [(p, g) for p, g in params_grads if needs(p)]
        clipped = {p.name: g for p, g in self._static_clip(pairs)}
        return [(p, clipped.get(p.name, g)) for p, g in params_grads]

    def _static_clip(self, params_grads: ParamGrads) -> ParamGrads:
        """Append the ops that clip every gradient."""
        raise NotImplementedError(f"{type(self).__name__} must define _static_clip(params_grads).")


def _clipped(parameter: Parameter, grad: Variable, op_type: str, attrs: dict[str, Any]) -> Variable:
    with grad.block.program.optimized_guard([parameter, grad]):
        return layer(op_type, x=grad, **attrs)


class GradientClipByValue(GradientClipBase):
    """Limits every element to ``min`` (default: -max) and ``max``."""

    def __init__(
        self,
        max: float,
        min: float | None = None,
        need_clip: Callable[[Parameter], bool] | None = None,
    ) -> None:
        super().__init__(need_clip)
        self.max = float(max)
        self.min = -self.max if min is None else float(min)

    def _static_clip(self, params_grads: ParamGrads) -> ParamGrads:
        """Append ``clip`` for each gradient."""
        attrs = {"min": self.min, "max": self.max}
        return [(p, _clipped(p, g, "clip", attrs)) for p, g in params_grads]


class GradientClipByNorm(GradientClipBase):
    """Each gradient is scaled down to a norm of at most ``clip_norm``."""

    def __init__(
        self, clip_norm: float, need_clip: Callable[[Parameter], bool] | None = None
    ) -> None:
        super().__init__(need_clip)
        self.clip_norm = float(clip_norm)

    def _static_clip(self, params_grads: ParamGrads) -> ParamGrads:
        """Append ``clip_by_norm`` for each gradient."""
        return [
            (p, _clipped(p, g, "clip_by_norm", {"max_norm": self.clip_norm}))
            for p, g in params_grads
        ]


class GradientClipByGlobalNorm(GradientClipBase):
    """All gradients are scaled by clip_norm / max(global norm, clip_norm). Pascanu et al., ICML 2013."""

    def __init__(
        self,
        clip_norm: float,
        group_name: str = "default_group",
        need_clip: Callable[[Parameter], bool] | None = None,
    ) -> None:
        super().__init__(need_clip)
        self.clip_norm = float(clip_norm)
        self.group_name = group_name

    def _static_clip(self, params_grads: ParamGrads) -> ParamGrads:
        """Append the global norm, the factor, and one product for each gradient."""
        if not params_grads:
            return params_grads
        program = params_grads[0][1].block.program
        squares = [self._square(program, p, g) for p, g in params_grads]
        with program.optimized_guard(list(params_grads[-1])):
            factor = self._factor(squares)
        clipped = []
        for parameter, grad in params_grads:
            with program.optimized_guard([parameter, grad]):
                helper = LayerHelper("elementwise_mul")
                own = factor if factor.dtype == grad.dtype else cast(factor, grad.dtype)
                clipped.append((parameter, helper.layer("elementwise_mul", x=grad, y=own)))
        return clipped

    @staticmethod
    def _square(program: ProgramBlocks, parameter: Parameter, grad: Variable) -> Variable:
        with program.optimized_guard([parameter, grad]):
            if grad.dtype in (VarType.FP16, VarType.BF16):  # squares would leave the range
                grad = cast(grad, "float32")
            square = layer("square", x=grad)
            return layer("reduce_sum", x=square, reduce_all=True)

    def _factor(self, squares: list[Variable]) -> Variable:
        total = layer("sum", x=squares)
        norm = layer("sqrt", x=total)
        limit = fill_constant([1], norm.dtype, self.clip_norm)
        larger = layer("elementwise_max", x=limit, y=norm)
        return layer("elementwise_div", x=limit, y=larger)


class BaseErrorClipAttr(SettingsRepr):
    """Base class of what clips the gradient of one variable while the backward pass runs."""

    def _append_clip_op(self, block: Block, grad_name: str) -> None:
        """Append the ops that clip a gradient, in place."""
        raise NotImplementedError


class ErrorClipByValue(BaseErrorClipAttr):
    """Limits every element of the gradient of one variable to ``min`` (default: -max) and ``max``."""

    def __init__(self, max: float, min: float | None = None) -> None:
        self.max = float(max)
        self.min = -self.max if min is None else float(min)

    def _append_clip_op(self, block: Block, grad_name: str) -> None:
        """Append ``clip`` of a gradient, in place."""
        attrs = {"min": self.min, "max": self.max}
        block.append_op("clip", {"X": grad_name}, {"Out": grad_name}, attrs)


def error_clip_callback(block: Block, context: dict[str, Any]) -> None:
    """Callback of ``append_backward``: clip the last op's gradients of variables with an ``error_clip``.

    Raises:
        InvalidType: a variable's ``error_clip`` is none.
    """
    op = context["__current_op_desc__"]
    for name in [n for n in op.output_arg_names if n in context]:
        forward = block.vars.get(context[name])
        if forward is None or forward.error_clip is None:
            continue
        require_type(
            forward.error_clip,
            BaseErrorClipAttr,
            f"variable {forward.name!r}: error_clip must be an ErrorClipByValue or None",
        )
        forward.error_clip._append_clip_op(block, name)


def set_gradient_clip(
    clip: GradientClipBase, param_list: Any = None, program: Program | None = None
) -> None:
    """Let parameters (default: all of ``program``) be clipped with ``clip`` when an optimizer runs.

    Raises:
        InvalidType: ``clip`` is no gradient clip.
    """
    require_type(clip, GradientClipBase, "set_gradient_clip takes a gradient clip")
    program = default_main_program() if program is None else program
    parameters = param_list if param_list is not None else program.all_parameters()
    for item in parameters:
        parameter: Any = program.global_block().var(item) if isinstance(item, str) else item
        parameter.gradient_clip_attr = clip


def append_gradient_clip(params_grads: ParamGrads, clip: GradientClipBase | None) -> ParamGrads:
    """Clip with the optimizer's ``clip``, else with that of the parameters (all of them have one, or none)."""
    if clip is not None:
        with name_scope("gradient_clip"):
            return _renamed(params_grads, clip.apply(params_grads))
    attributes = [p.gradient_clip_attr for p, _ in params_grads]
    if not attributes or any(attribute is None for attribute in attributes):
        return params_grads
    groups: dict[Any, ParamGrads] = {}
    for (parameter, grad), attribute in zip(params_grads, attributes, strict=True):
        group = getattr(attribute, "group_name", id(attribute))
        groups.setdefault(group, []).append((parameter, grad))
    clipped: dict[str, Variable] = {}
    with name_scope("gradient_clip"):
        for members in groups.values():
            attribute = members[0][0].gradient_clip_attr
            clipped |= {p.name: g for p, g in attribute.apply(members)}
    return _renamed(params_grads, [(p, clipped[p.name]) for p, _ in params_grads])


def append_gradient_clip_ops(params_grads: ParamGrads) -> ParamGrads:
    """Clip with the clips of the parameters, if all of them have one."""
    return append_gradient_clip(params_grads, None)


def _renamed(old_pairs: ParamGrads, new_pairs: ParamGrads) -> ParamGrads:
    """Mark the clipping ops with the names of the clipped gradients, as Paddle does."""
    new = {old.name: grad.name for (_, old), (_, grad) in zip(old_pairs, new_pairs, strict=True)}
    for op in old_pairs[0][1].block.program.global_block().ops if old_pairs else ():
        marks = op.attrs.get(ROLE_VAR)
        if marks and op.role == int(OpRole.Optimize):
            op.attrs[ROLE_VAR] = [new.get(name, name) for name in marks]
    return new_pairs
