"""Learning-rate schedules built from ops (Paddle 1.x): they advance with every step the program runs.

``@LR_DECAY_COUNTER@`` counts steps. Where Paddle branches (piecewise, polynomial with cycles, warm-up),
comparisons select the rate: the same numbers without control flow. Persistables have Paddle's names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...strategies.errors import InvalidType, InvalidValue
from ..layers import binary, io, shape, unary
from ..layers.arguments import number
from ..layers.helper import LayerHelper
from ..layers.initializer import ConstantInitializer
from ..program import unique_name
from ..program.program import default_main_program
from ..program.variable import Variable

COUNTER = "@LR_DECAY_COUNTER@"


def decay_step_counter(begin: int = 0) -> Variable:
    """Return the number of the step as a float32 of one element; the first step is ``begin``."""
    helper = LayerHelper("global_step_counter")
    block = default_main_program().global_block()
    fresh = not block.has_var(COUNTER)
    initial = ConstantInitializer(float(begin - 1), force_cpu=True)
    counter = helper.create_global(COUNTER, [1], "int64", initial, stop_gradient=True)
    if fresh:
        block._prepend_op("increment", {"X": counter}, {"Out": counter}, {"step": 1.0})
    return shape.cast(counter, "float32")


def _number(value: float) -> Variable:
    return shape.fill_constant([1], "float32", value)


def _choose(condition: Variable, yes: Any, no: Any) -> Variable:
    """Return yes * condition + no * (1 - condition), for finite numbers."""
    mask = shape.cast(condition, "float32")
    return mask * yes + (1.0 - mask) * no


def _in_persistable(name: str, rate: Variable) -> Variable:
    """Return the persistable ``name`` (or a numbered one, where the program has it) that takes the rate."""
    block = default_main_program().global_block()
    name = unique_name.generate(name) if block.has_var(name) else name
    return shape.assign(rate, io.create_global_var([1], 0.0, rate.dtype, True, name=name))


def exponential_decay(
    learning_rate: float, decay_steps: int, decay_rate: float, staircase: bool = False
) -> Variable:
    """learning_rate * decay_rate ^ (step / decay_steps), the exponent rounded down with ``staircase``."""
    with default_main_program().lr_schedule_guard():
        exponent = decay_step_counter() / float(decay_steps)
        exponent = unary.floor(exponent) if staircase else exponent
        return learning_rate * (decay_rate**exponent)


def natural_exp_decay(
    learning_rate: float, decay_steps: int, decay_rate: float, staircase: bool = False
) -> Variable:
    """learning_rate * exp(-decay_rate * step / decay_steps)."""
    with default_main_program().lr_schedule_guard():
        exponent = decay_step_counter() / float(decay_steps)
        exponent = unary.floor(exponent) if staircase else exponent
        return learning_rate * unary.exp(-1.0 * decay_rate * exponent)


def inverse_time_decay(
    learning_rate: float, decay_steps: int, decay_rate: float, staircase: bool = False
) -> Variable:
    """learning_rate / (1 + decay_rate * step / decay_steps)."""
    with default_main_program().lr_schedule_guard():
        share = decay_step_counter() / float(decay_steps)
        share = unary.floor(share) if staircase else share
        return learning_rate / (1.0 + decay_rate * share)


def polynomial_decay(
    learning_rate: float,
    decay_steps: int,
    end_learning_rate: float = 0.0001,
    power: float = 1.0,
    cycle: bool = False,
) -> Variable:
    """(learning_rate - end) * (1 - step / decay_steps) ^ power + end; with ``cycle`` over and over."""
    with default_main_program().lr_schedule_guard():
        step = decay_step_counter()
        if cycle:
            rounds = unary.ceil(step / float(decay_steps))
            rounds = binary.elementwise_max(rounds, _number(1.0))
            share = step / (rounds * float(decay_steps))
        else:
            share = binary.elementwise_min(step, _number(float(decay_steps))) / float(decay_steps)
        return (learning_rate - end_learning_rate) * ((1.0 - share) ** power) + end_learning_rate


def piecewise_decay(boundaries: Sequence[int], values: Sequence[float]) -> Variable:
    """``values[i]`` until step ``boundaries[i]``, in the variable ``learning_rate``.

    Raises:
        InvalidType: ``boundaries`` or ``values`` is no list.
        InvalidValue: there is not one value more than boundaries.
    """
    for argument, numbers in (("boundaries", boundaries), ("values", values)):
        if not hasattr(numbers, "__len__"):
            raise InvalidType(f"piecewise_decay: {argument} must be a list, got {numbers!r}.")
    if len(values) != len(boundaries) + 1:
        raise InvalidValue(
            f"piecewise_decay needs one value more than boundaries, got {len(values)} and {len(boundaries)}."
        )
    with default_main_program().lr_schedule_guard():
        step = decay_step_counter()
        rate = _number(float(values[-1]))
        for boundary, value in reversed(list(zip(boundaries, values[:-1], strict=True))):
            rate = _choose(step < float(boundary), float(value), rate)
        return _in_persistable("learning_rate", rate)


def noam_decay(d_model: float, warmup_steps: int, learning_rate: float = 1.0) -> Variable:
    """learning_rate * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5). Vaswani et al., arXiv 1706.03762.

    Raises:
        InvalidValue: ``d_model`` or ``warmup_steps`` is not above 0.
    """
    for argument, size in (("d_model", d_model), ("warmup_steps", warmup_steps)):
        if size <= 0:
            raise InvalidValue(f"noam_decay: {argument} must be above 0, got {size}.")
    with default_main_program().lr_schedule_guard():
        step = decay_step_counter(begin=1)
        falling = step**-0.5
        rising = (warmup_steps**-1.5) * step
        return learning_rate * (d_model**-0.5) * binary.elementwise_min(falling, rising)


def cosine_decay(learning_rate: float, step_each_epoch: int, epochs: int) -> Variable:
    """learning_rate * (cos(epoch * pi / epochs) + 1) / 2."""
    with default_main_program().lr_schedule_guard():
        epoch = unary.floor(decay_step_counter() / float(step_each_epoch))
        return learning_rate * 0.5 * (unary.cos(epoch * math.pi / float(epochs)) + 1.0)


def linear_lr_warmup(
    learning_rate: Any, warmup_steps: int, start_lr: float, end_lr: float
) -> Variable:
    """From ``start_lr`` to ``end_lr`` in ``warmup_steps``, then ``learning_rate`` (number or schedule).

    The rate stands in the variable ``learning_rate_warmup``.
    """
    if not isinstance(learning_rate, Variable):
        learning_rate = number(learning_rate, "learning_rate", "linear_lr_warmup")
    with default_main_program().lr_schedule_guard():
        step = decay_step_counter()
        rising = start_lr + (end_lr - start_lr) * (step / float(warmup_steps))
        rate = _choose(step < float(warmup_steps), rising, learning_rate)
        return _in_persistable("learning_rate_warmup", rate)
