"""Optimizers around another one: recomputation, merged gradients, and weights that look ahead."""

from __future__ import annotations

from typing import Any, NoReturn, Protocol, runtime_checkable

from ....strategies.errors import InvalidArgument, InvalidType, Unsupported
from ....strategies.types import LOW
from ...layers import binary, shape, unary
from ...layers.helper import LayerHelper
from ...layers.initializer import ConstantInitializer
from ...program import unique_name
from ...program.operator import Operator
from ...program.program import Program, default_startup_program, program_guard
from ...program.scopes import name_scope
from ...program.variable import Variable
from .base import Optimizer, ParamGrads
from .choice import choose, every, only_where


class _Wrapper(Optimizer):
    """An optimizer that leaves updates to another, whose learning rate and state are its own."""

    def __init__(self, optimizer: Optimizer) -> None:
        name = type(self).__name__
        if optimizer is None:
            raise InvalidArgument(f"{name}: the inner optimizer cannot be None.")
        if not isinstance(optimizer, Optimizer):
            raise InvalidType(
                f"{name} takes an optimizer, got {type(optimizer).__name__}. To have mixed precision too, "
                f"decorate the {name}."
            )
        inner = optimizer
        super().__init__(
            inner._learning_rate,
            inner._parameter_list,
            inner.regularization,
            inner._grad_clip,
            inner._name,
        )
        self._optimizer = inner
        self._learning_rate_map = inner._learning_rate_map
        self._accumulators = inner._accumulators
        self._masters, self._multi_precision = inner._masters, inner._multi_precision

    def _apply_inner(
        self, params_grads: ParamGrads, skip_update: Variable | None
    ) -> list[Operator]:
        inner = self._optimizer
        inner._multi_precision, inner._skip_update = self._multi_precision, skip_update
        try:
            return inner.apply_gradients(params_grads)
        finally:
            inner._skip_update = None


class RecomputeOptimizer(_Wrapper):
    """Computes the forward pass between checkpoints again, where gradients need it, instead of keeping it.

    Call ``_set_checkpoints`` before ``minimize`` or ``backward``. Results are the same, bit for bit: dropout
    draws the same again.

    Raises:
        InvalidType: ``optimizer`` is no optimizer, or one that is decorated for mixed precision (decorate this
            one instead).
    """

    def _set_checkpoints(self, checkpoints: list[Variable | str]) -> None:
        """Keep the values of these variables (or names); what lies between them is computed again.

        Raises:
            InvalidArgument: they are no list of Variables or names.
        """
        listed = isinstance(checkpoints, list)
        if not listed or not all(isinstance(item, (Variable, str)) for item in checkpoints):
            raise InvalidArgument("_set_checkpoints takes a list of Variables or names.")
        self._checkpoints = checkpoints

    def load(self, stat_dict: Any) -> NoReturn:
        """Refuse, as Paddle does.

        Raises:
            Unsupported: always; ``fluid.load`` loads a program's state.
        """
        raise Unsupported(
            "RecomputeOptimizer.load is not built; fluid.load loads a program's state."
        )

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
        *,
        parameters: Any = None,
    ) -> tuple[list[Operator], ParamGrads]:
        """Append the ops of a training step; see :meth:`Optimizer.minimize`.

        Raises:
            InvalidArgument: ``_set_checkpoints`` was not called.
        """
        if self._checkpoints is None:
            raise InvalidArgument("RecomputeOptimizer: call _set_checkpoints before minimize.")
        listed = parameters if parameter_list is None else parameter_list
        return super().minimize(loss, startup_program, listed, no_grad_set)

    def apply_gradients(self, params_grads: ParamGrads) -> list[Operator]:
        """Append the inner optimizer's clipping, decay and updates."""
        return self._apply_inner(params_grads, self._skip_update)


class GradientMergeOptimizer(_Wrapper):
    """Adds up gradients over ``k_steps`` steps, and updates in the last of them.

    ``avg``: by the mean of the gradients instead of their sum. In the other steps parameters and the state of
    the inner optimizer stay as they are. Updates are computed, and gradients meet, in every step.

    Raises:
        InvalidType: ``inner_optimizer`` is no optimizer, or decorated (decorate this one instead).
        InvalidArgument: it is None, or ``k_steps`` no int above 0.
    """

    def __init__(self, inner_optimizer: Optimizer, k_steps: Any = 1, avg: bool = True) -> None:
        super().__init__(inner_optimizer)
        self._set_k_steps(k_steps)
        self._set_avg(avg)

    def _set_k_steps(self, k_steps: int) -> None:
        self.k_steps = _positive(k_steps, "GradientMergeOptimizer: k_steps")

    def _set_avg(self, avg: bool) -> None:
        self.avg = avg

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
        callbacks: Any = None,
        *,
        parameters: Any = None,
    ) -> ParamGrads:
        """Append the inner optimizer's gradient ops.

        Raises:
            InvalidArgument: a ``parameter_list`` or ``no_grad_set``, as in Paddle.
        """
        listed = parameters if parameter_list is None else parameter_list
        for name, value in (("parameter_list", listed), ("no_grad_set", no_grad_set)):
            if value is not None:
                raise InvalidArgument(f"GradientMergeOptimizer: {name} must be None.")
        return self._optimizer.backward(loss, startup_program, callbacks=callbacks)

    def apply_gradients(self, params_grads: ParamGrads) -> list[Operator]:
        """Append the sums, and the inner optimizer's updates by them."""
        if not params_grads:
            return []
        program = params_grads[0][0].block.program
        block = program.global_block()
        with program.optimized_guard([]), name_scope("gradient_merge"):
            _, due = every(self.k_steps, "gradient_merge_step", wraps=True)
            sums: ParamGrads = []
            for parameter, grad in params_grads:
                total = LayerHelper("gradient_merge").create_global(
                    f"{parameter.name}@GRAD@GradientMerge",
                    list(parameter.shape or ()),
                    grad.dtype,
                    ConstantInitializer(0.0),
                    stop_gradient=True,
                )
                block.append_op("elementwise_add", {"X": grad, "Y": total}, {"Out": total})
                sums.append((parameter, total))
            share = 1.0 / self.k_steps if self.avg else 1.0
            means = [(p, unary.scale(total, share)) for p, total in sums]
        first = len(block.ops)
        self._apply_inner(means, None)
        with program.optimized_guard([]), name_scope("gradient_merge"):
            for _, total in sums:
                block.append_op("fill_zeros_like", {"X": total}, {"Out": total})
            only_where(block, first, due)
        program.touch()
        return block.ops[first:]


@runtime_checkable
class Minimizes(Protocol):
    """An optimizer, or what decorates one."""

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
    ) -> Any:
        """Append the ops of a training step."""


class LookaheadOptimizer:
    """Every ``k`` steps the weights go back towards where they were k steps ago: slow += alpha (fast - slow).

    Zhang, Lucas, Hinton and Ba, arXiv 1907.08610. ``inner_optimizer`` updates the fast weights in every step.

    Raises:
        InvalidArgument: there is no inner optimizer, ``alpha`` is not in [0, 1], or ``k`` no int above 0.
        InvalidType: ``inner_optimizer`` is no optimizer.
    """

    type = "lookahead"

    def __init__(self, inner_optimizer: Minimizes, alpha: float = 0.5, k: Any = 5) -> None:
        if inner_optimizer is None:
            raise InvalidArgument("LookaheadOptimizer: the inner optimizer cannot be None.")
        if not isinstance(inner_optimizer, Minimizes):
            kind = type(inner_optimizer).__name__
            raise InvalidType(f"LookaheadOptimizer takes an optimizer, got {kind}.")
        if not 0.0 <= alpha <= 1.0:
            raise InvalidArgument(f"LookaheadOptimizer: alpha must be in [0, 1], got {alpha!r}.")
        self.inner_optimizer = inner_optimizer
        self.alpha = alpha
        self.k = _positive(k, "LookaheadOptimizer: k")

    def minimize(self, loss: Variable, startup_program: Program | None = None) -> Any:
        """Append the inner optimizer's step and that of the slow weights; return what the inner one returns.

        Raises:
            Unsupported: a parameter in low precision, whose master the inner optimizer keeps for itself.
        """
        result = self.inner_optimizer.minimize(loss, startup_program=startup_program)
        program = loss.block.program
        startup_program = startup_program or default_startup_program()
        startup = startup_program.global_block()
        with program_guard(program, startup_program), program.optimized_guard([]):
            _, due = every(self.k, "lookahead_step", wraps=False)
            for fast in program.global_block().all_parameters():
                settings = {"name": f"{fast.name}@SLOW", "shape": fast.shape, "dtype": fast.dtype}
                slow = program.global_block().create_var(**settings, persistable=True)
                start = startup.create_var(**settings, persistable=True)
                startup.append_op("assign", {"X": startup.var(fast.name)}, {"Out": start})
                self._append_slow_step(due, fast, slow)
        return result

    def _append_slow_step(self, due: Variable, fast: Variable, slow: Variable) -> None:
        if fast.dtype in LOW:
            raise Unsupported(
                f"{type(self).__name__}: parameter {fast.name!r} in low precision is not built."
            )
        ahead = unary.scale(fast, self.alpha) + unary.scale(slow, 1.0 - self.alpha)
        for old in (slow, fast):
            choose(old.block, due, ahead, old)


class LookAhead(LookaheadOptimizer):
    """Paddle 2.x's form: slow weights begin where the first step leads, and only trained weights have them."""

    def __init__(
        self, inner_optimizer: Minimizes, alpha: float = 0.5, k: int = 5, name: str | None = None
    ) -> None:
        super().__init__(inner_optimizer, alpha, k)
        self._name = name

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameters: Any = None,
        no_grad_set: Any = None,
    ) -> tuple[list[Operator], ParamGrads]:
        """Append the inner optimizer's step and that of the slow weights; return what the inner one returns.

        Raises:
            Unsupported: a parameter in low precision, whose master the inner optimizer keeps for itself.
        """
        arguments = (loss, startup_program, parameters, no_grad_set)
        result: tuple[list[Operator], ParamGrads] = self.inner_optimizer.minimize(*arguments)
        program = loss.block.program
        startup_program = startup_program or default_startup_program()
        with program_guard(program, startup_program), program.optimized_guard([]):
            count, due = every(self.k, unique_name.generate("lookahead_step"), wraps=False)
            first = binary.equal(count, shape.fill_constant([1], "int32", 1))
            for fast, _ in result[1]:
                word = "slow" if self._name is None else f"{self._name}_slow"
                name = unique_name.generate(f"{fast.name}_{word}")
                slow = LayerHelper(self.type).create_global(
                    name, list(fast.shape or ()), fast.dtype, ConstantInitializer(0.0)
                )
                choose(slow.block, first, fast, slow)
                self._append_slow_step(due, fast, slow)
        return result


def _positive(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidArgument(f"{name} must be an int above 0, got {value!r}.")
    return value
