"""Averages of parameters over the steps of training, which take their place for an evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from ....strategies.errors import InvalidValue
from ....strategies.types import LOW, VarType
from ...layers import binary, shape, tensors
from ...layers.helper import LayerHelper
from ...layers.initializer import ConstantInitializer
from ...layers.io import create_global_var
from ...program import unique_name
from ...program.program import Program, default_main_program, program_guard
from ...program.scopes import name_scope
from ...program.variable import Parameter, Variable
from .base import Optimizer


class Runs(Protocol):
    """An executor."""

    def run(self, program: Program) -> Any:
        """Run a program once."""


class _Averages:
    """Parameters, and the programs that put averages in their place and restore them.

    The values of the parameters are stored in persistables meanwhile.
    """

    def __init__(
        self, prefix: str, word: str, parameters: Sequence[Parameter] | None = None
    ) -> None:
        """``parameters`` None: those of the default main program but the ones with do_model_average=False."""
        if parameters is None:
            every = default_main_program().global_block().all_parameters()
            parameters = [p for p in every if p.do_model_average is not False]
        self.apply_program, self.restore_program = Program(), Program()
        self._stores = [(p, unique_name.generate(f"{prefix}{p.name}.{word}")) for p in parameters]

    def _append_exchange(self, parameter: Parameter, store: str, average: Variable) -> None:
        """Append the storing of a parameter and its average to one program, the restoring to the other."""
        own, copies = (
            {
                name: program.global_block().create_var(
                    name=name, shape=parameter.shape, dtype=parameter.dtype, persistable=True
                )
                for name in (parameter.name, store)
            }
            for program in (self.apply_program, self.restore_program)
        )
        shape.assign(own[parameter.name], own[store])
        shape.assign(_like(average, parameter), own[parameter.name])
        with program_guard(self.restore_program):
            shape.assign(copies[store], copies[parameter.name])

    @contextmanager
    def apply(self, executor: Runs, need_restore: bool = True) -> Iterator[None]:
        """Let parameters have their averages inside the block; restore them behind it with ``need_restore``."""
        executor.run(self.apply_program)
        try:
            yield
        finally:
            if need_restore:
                self.restore(executor)

    def restore(self, executor: Runs) -> None:
        """Give parameters the values back that they had before :meth:`apply`."""
        executor.run(self.restore_program)


def _wide(parameter: Variable) -> Variable:
    """Return a parameter in a type in which many small steps add up."""
    return shape.cast(parameter, "float32") if parameter.dtype in LOW else parameter


def _like(average: Variable, parameter: Variable) -> Variable:
    return average if average.dtype == parameter.dtype else shape.cast(average, parameter.dtype)


def _wide_type(parameter: Variable) -> VarType | None:
    return VarType.FP32 if parameter.dtype in LOW else parameter.dtype


class ExponentialMovingAverage(_Averages):
    """average = decay average + (1 - decay) parameter in each step; applied, it is divided by 1 - decay^steps.

    Of the parameters that the default main program has when this is made, but those with
    ``do_model_average=False``. ``thres_steps``: a Variable t of one element; the decay is then at most
    (1 + t) / (10 + t). Parameters in low precision have averages in float32. The correction for the first steps
    is that of Kingma and Ba, arXiv 1412.6980, section 3.

    Raises:
        InvalidType: ``thres_steps`` is no Variable.
    """

    def __init__(
        self, decay: float = 0.999, thres_steps: Variable | None = None, name: str | None = None
    ) -> None:
        if not 0 <= decay <= 1:
            raise InvalidValue(
                f"ExponentialMovingAverage: decay must be a number in [0, 1], got {decay!r}."
            )
        prefix = name or ""
        self._decay = self._create_decay(decay, thres_steps)
        super().__init__(prefix, "ema_tmp")
        self._averages: dict[str, Variable] = {}
        for parameter, _ in self._stores:
            own = unique_name.generate(f"{prefix}{parameter.name}_ema")
            kind = _wide_type(parameter)
            average = create_global_var(list(parameter.shape or ()), 0.0, kind, True, name=own)
            self._averages[parameter.name] = average
        with program_guard(self.apply_program):
            self._append_apply()

    _COUNTER = "@EMA_STEP_COUNTER@"

    @staticmethod
    def _create_decay(decay: float, thres_steps: Variable | None) -> Variable:
        with default_main_program().lr_schedule_guard():
            variable = create_global_var(
                [1], decay, "float32", True, name="scheduled_ema_decay_rate"
            )
            if thres_steps is not None:
                steps = shape.cast(thres_steps, "float32")
                least = shape.fill_constant([1], "float32", decay)
                rising = (steps + 1.0) / (steps + 10.0)
                shape.assign(binary.elementwise_min(rising, least), variable)
        return variable

    def _append_apply(self) -> None:
        block = self.apply_program.global_block()
        counter = create_global_var([1], 0, "int64", True, name=self._COUNTER)
        steps = shape.cast(counter, "float32")
        one = shape.fill_constant([1], "float32", 1.0)
        remainder = one - binary.elementwise_pow(block._clone_variable(self._decay), steps)
        # Before the first step there is nothing to correct.
        share = shape.where(shape.cast(counter, "bool"), remainder, one)
        for parameter, store in self._stores:
            average = block._clone_variable(self._averages[parameter.name])
            self._append_exchange(parameter, store, average / _like(share, average))

    def update(self) -> None:
        """Append the averaging to the default main program; call it behind ``minimize``."""
        tensors.autoincreased_step_counter(self._COUNTER)
        for parameter, _ in self._stores:
            program = parameter.block.program
            with program.optimized_guard([]), name_scope("moving_average"):
                average = self._averages[parameter.name]
                decay = _like(self._decay, average)
                own = _wide(parameter)
                shape.assign(average * decay + own * (1.0 - decay), average)


class ModelAverage(_Averages, Optimizer):
    """The mean of a parameter over a window of the last steps.

    A window ends when it has ``min_average_window`` steps, and ``max_average_window`` or as many as
    ``average_window_rate`` times all steps; the applied mean covers the last complete window and the current
    one. Make it behind ``minimize``: it appends to the default main program, for all parameters but those with
    ``do_model_average=False``, or for the ``parameters`` given.

    Raises:
        ShapeError: ``min_average_window`` is above ``max_average_window``.
    """

    _SUMS = ("sum_1", "sum_2", "sum_3")
    _COUNTS = ("num_accumulates", "old_num_accumulates", "num_updates")

    def __init__(
        self,
        average_window_rate: float,
        min_average_window: int = 10000,
        max_average_window: int = 10000,
        regularization: Any = None,
        name: str | None = None,
        *,
        parameters: Sequence[Parameter] | None = None,
    ) -> None:
        Optimizer.__init__(self, 0.0, regularization=regularization, name=name)
        _Averages.__init__(self, "", "tmp", parameters)
        self.average_window = average_window_rate
        self.min_average_window, self.max_average_window = min_average_window, max_average_window
        for parameter, store in self._stores:
            program = parameter.block.program
            with program.optimized_guard([]), name_scope("move_average"):
                self._append_sums(parameter)
            with program_guard(self.apply_program):
                self._append_exchange(parameter, store, self._mean(parameter))

    def _append_sums(self, parameter: Parameter) -> None:
        helper = LayerHelper("average_accumulate")
        sizes = list(parameter.shape or ())
        kinds = [(n, _wide_type(parameter), sizes) for n in self._SUMS]
        for word, kind, size in [*kinds, *((n, VarType.INT64, [1]) for n in self._COUNTS)]:
            prefix = word if self._name is None else f"{self._name}_{word}"
            name = unique_name.generate(f"{parameter.name}_{prefix}")
            state = helper.create_global(name, size, kind, ConstantInitializer(0.0))
            self._accumulators[word, parameter.name] = state
        names = (*self._SUMS, *self._COUNTS)
        states = {n: self._get_accumulator(n, parameter) for n in names}
        helper.layers(
            "average_accumulates",
            "",
            param=_wide(parameter),
            **{f"in_{name}": state for name, state in states.items()},
            **{f"out_{name}": state for name, state in states.items()},
            average_window=self.average_window,
            min_average_window=self.min_average_window,
            max_average_window=self.max_average_window,
        )

    def _mean(self, parameter: Parameter) -> Variable:
        block = self.apply_program.global_block()
        sums, counts = (
            tensors.add_n(
                [block._clone_variable(self._get_accumulator(name, parameter)) for name in names]
            )
            for names in (self._SUMS, self._COUNTS[:2])
        )
        return sums / shape.cast(counts, sums.dtype)
