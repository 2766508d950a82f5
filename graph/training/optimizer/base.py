"""The base of optimizers, in Paddle's order: backward, clip, decay, update."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from ....strategies.errors import InvalidArgument, InvalidType, InvalidValue, NotFound, Unsupported
from ....strategies.types import LOW, VarType, to_var_type
from ...layers import layer_helper
from ...layers.helper import LayerHelper
from ...layers.initializer import ConstantInitializer, CopyInitializer
from ...layers.regularizer import WeightDecayRegularizer, append_regularization_ops
from ...program import unique_name
from ...program.block import Block, ProgramBlocks
from ...program.operator import Operator
from ...program.program import Program, default_startup_program, program_guard
from ...program.role import DEVICE
from ...program.scopes import device_guard, name_scope
from ...program.variable import Parameter, Variable
from ..backward import append_backward
from ..clip import GradientClipBase, append_gradient_clip, error_clip_callback
from ..lr_scheduler.base import LRScheduler
from .diagnosis import note_minimized, unreached

ParamGrad = tuple[Parameter, Variable]
ParamGrads = list[ParamGrad]


_IMPERATIVE = {
    "clear_grad": "Gradients are computed anew in each step: leave it out.",
    "clear_gradients": "Gradients are computed anew in each step: leave it out.",
    "set_lr": "Give the optimizer an LRScheduler, or a Variable that you set in the scope.",
    "set_lr_scheduler": "Give the scheduler to the optimizer as its learning_rate.",
    "set_state_dict": "Its state is among the program's variables: static.load, or Program.set_state_dict.",
    "state_dict": "Its state is among the program's variables: static.save, or Program.state_dict.",
    "step": "Call minimize(loss) once, while the program is built.",
}


class Optimizer:
    """Base class of optimizers.

    ``learning_rate`` is a float, a Variable (a schedule built from ops), or an :class:`LRScheduler`.

    Raises:
        InvalidType: another kind of learning rate, clip or regularization.
    """

    type = ""
    _checkpoints: list[Any] | None = None  # between them the backward pass computes results again
    has_master = False  # the op takes MasterParam
    skips = False  # the op takes SkipUpdate

    def __init__(
        self,
        learning_rate: Any,
        parameter_list: Any = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        method = type(self).__name__.removesuffix("Optimizer")
        if not isinstance(learning_rate, (float, Variable, LRScheduler)):
            raise InvalidType(
                f"{method}: learning_rate must be a float, a Variable or an LRScheduler, got {learning_rate!r}."
            )
        if grad_clip is not None and not isinstance(grad_clip, GradientClipBase):
            raise InvalidType(
                f"{method}: grad_clip must be a clip such as fluid.clip.GradientClipByGlobalNorm(1.0), got "
                f"{grad_clip!r} ({type(grad_clip).__name__})."
            )
        if regularization is not None and not isinstance(regularization, WeightDecayRegularizer):
            raise InvalidType(
                f"{method}: the weight decay must be a regularizer such as fluid.regularizer.L2Decay(0.01), "
                f"got {regularization!r}."
            )
        if isinstance(parameter_list, (str, Variable)) or not isinstance(
            parameter_list, (Iterable, type(None))
        ):
            raise InvalidType(
                f"{method}: parameter_list must be a list of parameters or names, got {parameter_list!r}."
            )
        self.regularization = regularization
        self._learning_rate = learning_rate
        self._parameter_list = parameter_list
        self._grad_clip = grad_clip
        self._name = name
        # Programs replace a rate here, so it has the name that Paddle gives it.
        self._learning_rate_map: dict[ProgramBlocks, Variable] = {}
        self._accumulators: dict[tuple[str, str], Variable] = {}
        self._multi_precision = False
        self._masters: dict[str, Variable] = {}
        # set by mixed precision: gradients are not finite
        self._skip_update: Variable | None = None

    def __repr__(self) -> str:
        rate = self._learning_rate
        rate_text = rate.name if isinstance(rate, Variable) else rate
        rate_text = type(rate_text).__name__ if isinstance(rate_text, LRScheduler) else rate_text
        return f"<{type(self).__name__}: learning_rate={rate_text}, {len(self._accumulators)} accumulators>"

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
        *,
        parameters: Any = None,
    ) -> tuple[list[Operator], ParamGrads]:
        """Append the ops of a training step; return the update ops and (parameter, gradient) pairs.

        ``parameters`` is Paddle 2.x's name of ``parameter_list``.

        Raises:
            InvalidArgument: ``loss`` is no Variable, or has not exactly one element.
            InvalidValue: no parameter that may be trained leads to ``loss``.
        """
        if not isinstance(loss, Variable):
            raise InvalidArgument(
                f"minimize: the loss must be a Variable, got {type(loss).__name__}."
            )
        parameter_list = parameters if parameter_list is None else parameter_list
        pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self.apply_optimize(loss, startup_program, pairs), pairs

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
        """Append the gradient ops; parameters that are not trainable stop the flow."""
        parameter_list = parameters if parameter_list is None else parameter_list
        if tuple(loss.shape or ()) != (1,):
            raise InvalidArgument(
                f"the loss {loss.name!r} must have shape [1], has {list(loss.shape or ())}. Use layers.mean."
            )
        no_grad = set(no_grad_set or ())
        program = loss.block.program
        no_grad |= {p.name for p in program.all_parameters() if not p.trainable}
        parameters = parameter_list if parameter_list is not None else self._parameter_list
        with program_guard(program, startup_program or default_startup_program()):
            callbacks = callbacks or [error_clip_callback]
            pairs = append_backward(loss, parameters, no_grad, callbacks, self._checkpoints)
        if not pairs:
            raise InvalidValue(unreached(loss, parameters))
        note_minimized(loss, pairs)
        return pairs

    def apply_optimize(
        self, loss: Variable, startup_program: Program | None, params_grads: ParamGrads
    ) -> list[Operator]:
        """Append clipping, decay and updates to the loss's program."""
        with program_guard(loss.block.program, startup_program or default_startup_program()):
            return self.apply_gradients(params_grads)

    def apply_gradients(self, params_grads: ParamGrads) -> list[Operator]:
        """Append clipping, decay and updates for pairs, sorted by parameter name."""
        pairs = sorted(params_grads, key=lambda pair: pair[0].name)
        pairs = append_gradient_clip(pairs, self._grad_clip)
        pairs = append_regularization_ops(pairs, self.regularization)
        if not pairs:
            return []
        return self._append_updates(pairs)

    def _append_updates(self, pairs: ParamGrads) -> list[Operator]:
        block = pairs[0][0].block.program.global_block()
        first = len(block.ops)
        device = _devices(block)
        for parameter, _ in pairs:
            with device_guard(device.get(parameter.name, "")):
                self._create_master(parameter)
                self._create_accumulators(block, [parameter])
        double = any(parameter.dtype == VarType.FP64 for parameter, _ in pairs)
        self._create_rate(block.program, VarType.FP64 if double else VarType.FP32)
        for parameter, grad in pairs:
            if not parameter.trainable:
                continue
            with (
                block.program.optimized_guard([parameter, grad]),
                name_scope("optimizer"),
                device_guard(device.get(parameter.name, "")),
            ):
                self._append_optimize_op(block, (parameter, grad))
        self._finish_update(block, pairs)
        return block.ops[first:]

    # -- for the methods, and for optimizers that programs write: the names are Paddle's --------

    def _create_master(self, parameter: Parameter) -> None:
        """Create the float32 master of a parameter in low precision, if the optimizer has masters."""
        if not self._multi_precision or not self.has_master or parameter.dtype not in LOW:
            return
        self._masters[parameter.name] = LayerHelper(self.type).create_global(
            unique_name.generate(f"{parameter.name}_fp32_master"),
            list(parameter.shape or ()),
            VarType.FP32,
            CopyInitializer(parameter.name),
        )

    @property
    def helper(self) -> layer_helper.LayerHelper:
        """A helper for the ops and variables of an update that a program writes."""
        return layer_helper.LayerHelper(type(self).__name__)

    def _create_accumulators(self, block: Block, parameters: list[Parameter]) -> None:
        """Create the accumulators of parameters."""

    def _append_optimize_op(self, block: Block, param_and_grad: ParamGrad) -> Any:
        """Append the update of a parameter."""
        name = type(self).__name__
        raise NotImplementedError(f"{name} must define _append_optimize_op(block, param_and_grad).")

    def _finish_update(self, block: Block, parameters_and_grads: ParamGrads) -> None:
        """Append the ops behind all updates."""

    def _add_accumulator(
        self,
        name: str,
        param: Parameter,
        dtype: Any = None,
        fill_value: float = 0.0,
        shape: Any = None,
        type: Any = None,
        device: str | None = None,
    ) -> Variable:
        """Create an accumulator of a parameter and return it; ``type`` and ``device`` are the parameter's."""
        prefix = f"{name}" if self._name is None else f"{self._name}_{name}"
        owner = self._masters.get(param.name, param).name
        default = VarType.FP32 if param.dtype in LOW else param.dtype
        accumulator = LayerHelper(self.type).create_global(
            unique_name.generate(f"{owner}_{prefix}"),
            list(shape if shape is not None else param.shape or ()),
            to_var_type(dtype) if dtype is not None else default,
            ConstantInitializer(fill_value),
        )
        self._accumulators[name, param.name] = accumulator
        return accumulator

    def _get_accumulator(self, name: str, param: Parameter) -> Variable:
        """Return an accumulator.

        Raises:
            NotFound: there is none of this name for the parameter.
        """
        if (name, param.name) not in self._accumulators:
            raise NotFound(f"{self!r} has no accumulator {name!r} of the parameter {param.name!r}.")
        return self._accumulators[name, param.name]

    # -- learning rate --------------------------------------------------------------------------

    def _create_rate(self, program: ProgramBlocks, dtype: VarType) -> None:
        if program in self._learning_rate_map:
            return
        rate = self._learning_rate
        if isinstance(rate, Variable):
            self._learning_rate_map[program] = rate
            return
        start = rate() if isinstance(rate, LRScheduler) else rate
        variable = LayerHelper("learning_rate", "learning_rate").create_global(
            unique_name.generate("learning_rate"),
            [1],
            dtype,
            ConstantInitializer(float(start)),
            stop_gradient=True,
        )
        self._learning_rate_map[program] = variable
        if isinstance(rate, LRScheduler):
            program.lr_scheduler = (rate, variable.name)

    def __getattr__(self, name: str) -> NoReturn:
        message = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name in _IMPERATIVE:
            message = f"{type(self).__name__}.{name} is of the imperative (dygraph) mode. {_IMPERATIVE[name]}"
        raise AttributeError(message, name=name, obj=self)

    def get_lr(self) -> float:
        """Return the rate of the next step.

        Raises:
            Unsupported: ops compute the rate.
        """
        rate = self._learning_rate
        if isinstance(rate, Variable):
            raise Unsupported(
                f"get_lr: ops compute the learning rate {rate.name!r}. Fetch it with a step."
            )
        return float(rate() if isinstance(rate, LRScheduler) else rate)

    def _global_learning_rate(self, program: Program | None = None) -> Variable | None:
        rates = self._learning_rate_map
        return next(iter(rates.values()), None) if program is None else rates.get(program)

    def _create_param_lr(self, param_and_grad: ParamGrad) -> Variable:
        """Return the rate of a parameter: the global one, times its own factor."""
        parameter = param_and_grad[0]
        rate = self._learning_rate_map[parameter.block.program]
        factor = parameter.optimize_attr["learning_rate"]
        if isinstance(factor, Variable):
            return factor
        if factor == 1.0:
            return rate
        program = parameter.block.program
        with program.lr_schedule_guard(is_with_opt=True), name_scope("scale_with_param_lr"):
            block = program.global_block()
            scaled = block.create_var(name=unique_name.generate("tmp"), dtype=rate.dtype)
            block.append_op("scale", {"X": rate}, {"Out": scaled}, {"scale": float(factor)})
            return scaled

    def get_opti_var_name_list(self) -> list[str]:
        """Return the names of the accumulators."""
        return [variable.name for variable in self._accumulators.values()]


def _devices(block: Block) -> dict[str, str]:
    """Return, by variable, the ``device_guard`` of the first op that reads it, which updates follow."""
    devices: dict[str, str] = {}
    for op in block.ops:
        for name in op.input_arg_names:
            devices.setdefault(name, op.attrs[DEVICE])
    return devices
