"""An optimizer for mixed precision: rewrites the program, scales the loss, and skips gradients not finite.

Micikevicius et al., "Mixed Precision Training", arXiv 1710.03740.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....strategies.errors import InvalidArgument, InvalidState, InvalidType, InvalidValue
from ....strategies.types import VarType
from ...layers.helper import LayerHelper, layer, layers
from ...layers.io import create_global_var
from ...layers.shape import cast
from ...program import unique_name
from ...program.block import ProgramBlocks
from ...program.operator import Operator
from ...program.program import Program, default_startup_program, program_guard
from ...program.role import ROLE, ROLE_VAR, OpRole
from ...program.variable import Variable
from ..optimizer.base import Optimizer, ParamGrads
from .rewrite import Rules, rewrite


@dataclass(frozen=True)
class Scaling:
    """Settings of loss scaling, without which small gradients vanish in float16.

    ``dynamic``: the scale grows by ``incr_ratio`` after ``incr_every_n_steps`` steps in a row whose gradients
    are finite, and shrinks by ``decr_ratio`` (not below 1) after ``decr_every_n_nan_or_inf`` others.

    Raises:
        InvalidValue: a scale, count or ratio that cannot work.
        InvalidType: ``dynamic`` is no bool.
    """

    start: float = 1.0
    dynamic: bool = False
    incr_every_n_steps: int = 1000
    decr_every_n_nan_or_inf: int = 2
    incr_ratio: float = 2.0
    decr_ratio: float = 0.8

    def __post_init__(self) -> None:
        if not isinstance(self.dynamic, bool):
            raise InvalidType(f"use_dynamic_loss_scaling must be a bool, got {self.dynamic!r}.")
        _require("init_loss_scaling", self.start, "above 0", lambda x: x > 0)
        for name in ("incr_every_n_steps", "decr_every_n_nan_or_inf"):
            count = getattr(self, name)
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise InvalidValue(f"{name} must be an int above 0, got {count!r}.")
        _require("incr_ratio", self.incr_ratio, "above 1", lambda x: x > 1)
        _require("decr_ratio", self.decr_ratio, "between 0 and 1", lambda x: 0 < x < 1)

    @property
    def used(self) -> bool:
        """Whether the loss is scaled at all."""
        return self.dynamic or self.start != 1.0


def _require(name: str, value: Any, condition: str, holds: Callable[[float], bool]) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not holds(value):
        raise InvalidValue(f"{name} must be a number {condition}, got {value!r}.")


class MixedPrecision:
    """Wraps an optimizer; used like one.

    ``rules`` is None where nothing is rewritten (level O0). ``master_grad``: gradients in low precision are
    cast to float32 before they are clipped and used. ``skips``: after gradients that are not finite, Adam and
    AdamW leave all their state as it was; other optimizers get zeros.

    Raises:
        InvalidType: ``optimizer`` is no optimizer.
        InvalidArgument: it is decorated already.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        rules: Rules | None,
        scaling: Scaling,
        *,
        master_grad: bool = False,
        skips: bool = True,
    ) -> None:
        if isinstance(optimizer, MixedPrecision):
            raise InvalidArgument(
                "decorate: the optimizer is decorated for mixed precision already."
            )
        if not isinstance(optimizer, Optimizer):
            raise InvalidType(f"decorate takes an optimizer, got {type(optimizer).__name__}.")
        self._optimizer = optimizer
        self._rules = rules
        self._scaling = scaling
        self._master_grad = master_grad
        self._skips = skips
        self._train_program: ProgramBlocks | None = None
        self._low_names: set[str] = set()
        self._loss_scaling: Variable | None = None
        self._scaled_loss: Variable | None = None
        self._counters: tuple[Variable, ...] = ()

    def get_loss_scaling(self) -> Variable:
        """Return the variable that holds the loss scale; fetch it to see it change.

        Before ``minimize`` this creates it in the default programs, as ``decorate`` of Paddle 1.8 does.
        """
        return self._create_scale() if self._loss_scaling is None else self._loss_scaling

    def get_scaled_loss(self) -> Variable | None:
        """Return the loss times the scale (None before ``backward``)."""
        return self._scaled_loss

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
    ) -> tuple[list[Operator], ParamGrads]:
        """Append the ops of a training step; return the update ops and (parameter, gradient) pairs."""
        if not isinstance(loss, Variable):
            raise InvalidArgument(
                f"minimize: the loss must be a Variable, got {type(loss).__name__}."
            )
        pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self.apply_optimize(loss, startup_program, pairs), pairs

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
        callbacks: Any = None,
    ) -> ParamGrads:
        """Rewrite the loss's program, scale the loss, and append the gradient ops."""
        program = self._train_program = loss.block.program
        with program_guard(program, startup_program or default_startup_program()):
            if self._loss_scaling is None or self._loss_scaling.block.program is not program:
                self._create_scale()
            if self._rules is not None:
                self._low_names |= rewrite(program, self._rules)
            if loss.dtype != VarType.FP32:
                loss = cast(loss, "float32")
            if self._scaling.used:
                factors = {"X": loss, "Y": self._loss_scaling}
                loss = layer("elementwise_mul", **factors)
            self._scaled_loss = loss
            return self._optimizer.backward(
                loss, startup_program, parameter_list, no_grad_set, callbacks
            )

    def apply_optimize(
        self, loss: Variable, startup_program: Program | None, params_grads: ParamGrads
    ) -> list[Operator]:
        """Append the ops behind the backward pass to the loss's program."""
        with program_guard(loss.block.program, startup_program or default_startup_program()):
            return self.apply_gradients(params_grads)

    def apply_gradients(self, params_grads: ParamGrads) -> list[Operator]:
        """Append the check of scaled gradients, the new scale, clipping, decay and updates.

        Raises:
            InvalidState: ``backward`` was not called.
        """
        program = self._train_program
        if program is None:
            raise InvalidState("apply_gradients: call backward first.")
        _reduce_in_low_precision(params_grads)
        with program.optimized_guard([]):
            if self._master_grad:
                params_grads = [(p, _widened(g)) for p, g in params_grads]
            if self._scaling.used and params_grads:
                groups = _by_type(params_grads)
                found_infinite = self._unscale(groups)
                if self._scaling.dynamic:
                    self._rescale(groups, found_infinite)
                self._optimizer._skip_update = found_infinite if self._skips else None
        try:
            return self._optimizer.apply_gradients(params_grads)
        finally:
            self._optimizer._skip_update = None

    # -- loss scaling ---------------------------------------------------------------------------

    def _create_scale(self) -> Variable:
        names = ("num_good_steps", "num_bad_steps") if self._scaling.dynamic else ()
        start = float(self._scaling.start)
        self._loss_scaling = _create_state("loss_scaling", start, "float32")
        self._counters = tuple(_create_state(name, 0, "int32") for name in names)
        return self._loss_scaling

    def _unscale(self, groups: list[list[Variable]]) -> Variable:
        """Append the check of each type's gradients; return a variable: whether any is not finite."""
        flags = []
        for grads in groups:
            helper = LayerHelper("check_finite_and_unscale")
            flags.append(helper.new("bool", stop_gradient=True))
            fields = {"x": grads, "scale": self._loss_scaling, "found_infinite": flags[-1]}
            helper.layers(helper.layer_type, "", **fields, out=grads)
        if len(flags) == 1:
            return flags[0]
        all_flags = layer("concat", x=flags, axis=0)
        return layer("reduce_any", x=all_flags, reduce_all=True)

    def _rescale(self, groups: list[list[Variable]], found_infinite: Variable) -> None:
        """Append the zeroing of each type's gradients; the first also updates the scale."""
        good, bad = self._counters
        settings = ("incr_every_n_steps", "decr_every_n_nan_or_inf", "incr_ratio", "decr_ratio")
        for i, grads in enumerate(groups):
            layers(
                "update_loss_scaling",
                None,
                "",
                x=grads,
                found_infinite=found_infinite,
                prev_loss_scaling=self._loss_scaling,
                in_good_steps=good,
                in_bad_steps=bad,
                out=grads,
                loss_scaling=self._loss_scaling,
                out_good_steps=good,
                out_bad_steps=bad,
                stop_update=i > 0,
                **{name: getattr(self._scaling, name) for name in settings},
            )


def _create_state(name: str, value: float, dtype: str) -> Variable:
    return create_global_var([1], value, dtype, True, name=unique_name.generate(name))


def _by_type(pairs: ParamGrads) -> list[list[Variable]]:
    """Return the gradients by element type, float32 first."""
    groups: dict[VarType, list[Variable]] = {}
    for _, grad in pairs:
        assert grad.dtype is not None
        groups.setdefault(grad.dtype, []).append(grad)
    return [groups[dtype] for dtype in sorted(groups, key=lambda dtype: dtype != VarType.FP32)]


def _widened(grad: Variable) -> Variable:
    return grad if grad.dtype == VarType.FP32 else cast(grad, "float32")


def _reduce_in_low_precision(pairs: ParamGrads) -> None:
    """Reduce gradients over the replicas before they are cast to float32, in half the bytes.

    The casts move behind the backward pass; the ops that compute their operands carry the parameter's mark.
    """
    for parameter, grad in pairs:
        op = grad.op
        if op is None or op.type != "cast" or not op.role & OpRole.Backward:
            continue
        ops = op.block.ops
        at = ops.index(op)
        (low,) = op.input("X")
        makers = [o for o in ops[:at] if low in o.output_arg_names]
        if not makers or any(grad.name in o.input_arg_names for o in ops[at + 1 :]):
            continue
        makers[-1].attrs[ROLE_VAR] = [parameter.name, low, *makers[-1].attrs.get(ROLE_VAR, [])]
        op.attrs[ROLE_VAR], op.attrs[ROLE] = [], int(OpRole.Optimize)
        ops.append(ops.pop(at))
        op.block.program.touch()
