"""Why a loss trains nothing, or not what the user expects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....strategies.types import FLOATS
from ...program.operator import Operator
from ...program.variable import Parameter, Variable
from ...program.where import user_line, warn_user
from ..gradient_ops import WHILE


def unreached(loss: Variable, parameter_list: Any) -> str:
    """Describe why there is nothing to train."""
    parameters = loss.block.program.all_parameters()
    frozen = [p.name for p in parameters if not p.trainable]
    if not parameters:
        reason = "the program has no parameters"
    elif parameter_list is not None:
        names = [p if isinstance(p, str) else p.name for p in parameter_list]
        reason = f"parameter_list names {', '.join(names) or 'none'}"
    elif len(frozen) == len(parameters):
        reason = "every parameter has trainable=False"
    elif loops := _stopped_loops(loss):
        reason = _describe_loop(*loops[0])
    elif flat := _without_gradient(loss):
        reason = f"{flat.type} has no gradient (built at {flat.where})"
    else:
        reason = (
            "variables in between have stop_gradient=True, or the parameters serve something else"
        )
    return (
        f"minimize: no parameter leads to the loss {loss.name!r}, so there is nothing to train: {reason}. "
        f"Parameters of the program: {', '.join(p.name for p in parameters[:5]) or 'none'}"
        f"{', ...' if len(parameters) > 5 else ''}."
    )


def _without_gradient(loss: Variable) -> Operator | None:
    """Return the op nearest to a loss that reads what a parameter leads to, and has no gradient; or None."""
    block = loss.block.program.global_block()
    led_to = {parameter.name for parameter in block.program.all_parameters() if parameter.trainable}
    for op in block.ops:
        if not led_to.isdisjoint(op.input_arg_names):
            led_to.update(op.output_arg_names)
    needed = {loss.name}
    for op in reversed(block.ops):
        if needed.isdisjoint(op.output_arg_names):
            continue
        if op.declaration.grad is None and not led_to.isdisjoint(op.input_arg_names):
            return op
        needed.update(op.input_arg_names)
    return None


def note_minimized(loss: Variable, pairs: Sequence[tuple[Variable, Variable]]) -> None:
    """Warn if a loss is minimized a second time for the same parameters: each step would update twice.

    And if a loop that passes no gradient on leaves parameters as they are.
    """
    program, names = loss.block.program, {parameter.name for parameter, _ in pairs}
    for earlier, earlier_names, where in program.minimized:
        again = sorted(names & earlier_names)
        if earlier == loss.name and again:
            warn_user(
                f"the loss {loss.name!r} is minimized already for {len(again)} of these parameters, such as "
                f"{again[0]!r} (at {where}): every step will update them twice. Call minimize once, or "
                f"build a new Program."
            )
            break
    program.minimized.append((loss.name, names, user_line()))
    for loop, carried in _stopped_loops(loss):
        still = [
            p.name for p in _trained(loss) if p.name in loop.input_arg_names and p.name not in names
        ]
        if still:
            warn_user(
                f"minimize: {', '.join(map(repr, still))} get no gradient: {_describe_loop(loop, carried)}."
            )


def _trained(loss: Variable) -> list[Parameter]:
    return [p for p in loss.block.program.all_parameters() if p.trainable]


def _stopped_loops(loss: Variable) -> list[tuple[Operator, list[str]]]:
    """Return loops that a loss reads and that no gradient enters, with the names of the floats they carry.

    As in Paddle a gradient enters what a loop carries only if that is not stopped where the loop begins.
    """
    block = loss.block.program.global_block()
    parameters = {parameter.name for parameter in _trained(loss)}
    needed, loops = {loss.name}, []
    for op in reversed(block.ops):
        if needed.isdisjoint(op.output_arg_names):
            continue
        if op.type == WHILE and not parameters.isdisjoint(op.input_arg_names):
            carried = [block.vars[name] for name in op.outputs["Out"] if name in block.vars]
            floats = [x for x in carried if x.dtype in FLOATS]
            if floats and all(x.stop_gradient for x in floats):
                loops.append((op, [x.name for x in floats if x.name in needed]))
        needed.update(op.input_arg_names)
    return loops


def _describe_loop(loop: Operator, carried: Sequence[str]) -> str:
    names = ", ".join(map(repr, carried))
    return (
        f"no gradient enters the loop (built at {loop.where}), because {names} had stop_gradient=True before "
        f"it, as data and constants do. Set stop_gradient = False of it before the loop"
    )
