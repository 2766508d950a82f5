"""Backward: appends the gradient ops of a program to it, Paddle's way.

``append_backward`` finds the ops that lead to a loss, emits the gradient op of each in reverse order
(``gradient_ops.py``), and sums gradients that several ops write (``gradient_sums.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...strategies.errors import InvalidType, InvalidValue, Unsupported, nearest, require_type
from ...strategies.types import VarType
from ..program.block import Block, ProgramBlocks
from ..program.operator import Operator
from ..program.role import DEVICE, GRAD_SUFFIX, ROLE, ROLE_VAR, OpRole, grad_name
from ..program.variable import Parameter, Variable
from ..program.where import warn_user
from .gradient_ops import GradientNames, backward_ops, path_to, with_recomputation
from .gradient_sums import GradOp, accumulate
from .single_assignment import name_overwritten_values

Callback = Callable[[Block, dict[str, Any]], None]


def append_backward(
    loss: Variable,
    parameter_list: Any = None,
    no_grad_set: Any = None,
    callbacks: Sequence[Callback] | None = None,
    checkpoints: Any = None,
) -> list[tuple[Parameter, Variable]]:
    """Append the gradient ops of ``loss`` and return (parameter, gradient) pairs.

    Args:
        loss: the variable to differentiate.
        parameter_list: parameters (or names) to return; default: every trainable parameter that has one.
        no_grad_set: variables (or names) through which no gradient flows.
        callbacks: called with the block and a context after each appended op.
        checkpoints: variables (or names) whose values are kept from the forward pass; values between them are
            computed again where gradients need them, which saves memory (see ``recompute.py``).

    Raises:
        InvalidType: an argument of the wrong type.
    """
    _check_arguments(loss, parameter_list, callbacks)
    if checkpoints is not None and not isinstance(checkpoints, (list, tuple, set)):
        raise InvalidType("append_backward: checkpoints must be a list of Variables or names.")
    marks = _names(checkpoints or (), "checkpoints")
    program = loss.block.program
    block = program.global_block()
    for mark in marks:
        if not block.has_var(mark):
            warn_user(
                f"checkpoint {mark!r} is no variable of the program.{nearest(mark, block.vars)}"
            )
    source = _producer(block, loss)
    source.attrs[ROLE] = source.role | int(OpRole.Loss)
    stopped = _stopped(program, no_grad_set)
    with program.role_guard(OpRole.Backward, []):
        program._appending_grad_times += 1
        path, _ = _path_of_values(block, {loss.name}, set(), stopped)
        first = len(block.ops)
        names = GradientNames(program, block)
        seed = names.seed(loss.name)
        _append_seed(block, loss, seed, source.attrs[DEVICE])
        seed_of = {names.of(loss.name): seed}
        grads = with_recomputation(block, path, marks, set(seed_of), stopped, names)
        grads = accumulate(grads, seed_of)
        _append(block, grads, callbacks)
    return _pairs(program, block, parameter_list, names, first)


def gradients(
    targets: Any, inputs: Any, target_gradients: Any = None, no_grad_set: Any = None
) -> list[Variable | None]:
    """Return the gradients of ``targets`` (summed) with respect to each input; None where unreachable.

    Of an input that is written again, the gradient is that of its first value that has a gradient.

    Args:
        targets, inputs: a Variable or a list of them.
        target_gradients: one Variable (or None: ones) for each target.
        no_grad_set: variables (or names) through which no gradient flows.

    Raises:
        InvalidType: an argument is no Variable or list of them.
        InvalidValue: another number or shape of target gradients than of targets.
    """
    targets, inputs = _variables(targets, "targets"), _variables(inputs, "inputs")
    target_grads = (
        [None] * len(targets) if target_gradients is None else _target_gradients(target_gradients)
    )
    if len(target_grads) != len(targets):
        raise InvalidValue(
            f"gradients: {len(target_grads)} target_gradients for {len(targets)} targets."
        )
    program = targets[0].block.program
    block = program.global_block()
    input_names = {v.name for v in inputs}
    stopped = _stopped(program, no_grad_set) - input_names
    with program.role_guard(OpRole.Backward, []):
        program._appending_grad_times += 1
        path, older = _path_of_values(block, {t.name for t in targets}, input_names, stopped)
        first = len(block.ops)
        names = GradientNames(program, block)
        seeds = {
            t.name: _target_seed(block, t, g, names)
            for t, g in zip(targets, target_grads, strict=True)
        }
        _append(block, backward_ops(path, seeds, stopped, names), None)
    computed = {name for op in block.ops[first:] for name in op.output_arg_names}
    results: list[Variable | None] = []
    for v in inputs:
        values = map(names.of, (*older.get(v.name, ()), v.name))
        name = next((n for n in values if n in computed), seeds.get(v.name))
        results.append(None if name is None else block.vars[name])
    return results


def _path_of_values(
    block: Block, targets: set[str], inputs: set[str], stopped: set[str]
) -> tuple[list[Operator], dict[str, list[str]]]:
    """Return the ops that lead to the targets, and the names that overwritten values have got.

    Those of variables in ``stopped`` are added there.
    """
    path = path_to(block, targets, inputs, stopped)
    older = name_overwritten_values(block, path, stopped)
    own = {value for name in inputs & older.keys() for value in older[name]}
    return path_to(block, targets, inputs | own, stopped), older


def _check_arguments(loss: Any, parameter_list: Any, callbacks: Any) -> None:
    require_type(loss, Variable, "append_backward: loss must be a Variable")
    if parameter_list is not None:
        if not isinstance(parameter_list, (list, tuple, set)):
            raise InvalidType(
                "append_backward: parameter_list must be a list of parameters or names."
            )
        _names(parameter_list, "parameter_list")
    if callbacks is not None:
        if not isinstance(callbacks, (list, tuple)):
            raise InvalidType("append_backward: callbacks must be a list.")
        if not all(callable(callback) for callback in callbacks):
            raise InvalidValue("append_backward: every callback must be callable.")


def _names(items: Iterable[Any], argument: str) -> list[str]:
    names = []
    for item in items:
        require_type(item, str | Variable, f"{argument} holds Variables or names")
        names.append(item if isinstance(item, str) else item.name)
    return names


def _variables(value: Any, argument: str) -> list[Variable]:
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    for item in items:
        require_type(item, Variable, f"gradients: {argument} must be Variables")
    return items


def _target_gradients(target_gradients: Any) -> list[Variable | None]:
    items = (
        list(target_gradients)
        if isinstance(target_gradients, (list, tuple))
        else [target_gradients]
    )
    for item in items:
        require_type(item, Variable | None, "gradients: target_gradients must be Variables or None")
    return items


def _producer(block: Block, loss: Variable) -> Operator:
    for op in reversed(block.ops):
        if loss.name in op.output_arg_names:
            return op
    if loss.block.idx:
        raise Unsupported(
            f"append_backward: {loss.name!r} is made in a branch, step or loop; gradients are built outside "
            f"them: call it for what the block returns."
        )
    raise InvalidValue(f"append_backward: no operator of the program makes {loss.name!r}.")


def _stopped(program: ProgramBlocks, no_grad_set: Any) -> set[str]:
    """Return the names of variables through which no gradient flows."""
    if no_grad_set is not None and not isinstance(no_grad_set, (set, list, tuple, frozenset)):
        raise InvalidType("no_grad_set must be a set or list of Variables or names.")
    stopped = {v.name for v in program.list_vars() if v.stop_gradient}
    return stopped.union(_names(no_grad_set or (), "no_grad_set"))


def _append_seed(block: Block, loss: Variable, seed: str, device: str) -> None:
    assert loss.dtype is not None
    block.create_var(name=seed, shape=(1,), dtype=loss.dtype)
    attrs = {
        "shape": [1],
        "value": 1.0,
        "dtype": int(loss.dtype),
        ROLE: int(OpRole.Backward | OpRole.Loss),
        DEVICE: device,
    }
    block.append_op("fill_constant", None, {"Out": seed}, attrs)


def _target_seed(
    block: Block, target: Variable, grad: Variable | None, names: GradientNames
) -> str:
    """Return the name of a target's gradient: ``grad``, or ones of the target's shape."""
    if grad is not None:
        if grad.shape != target.shape:
            raise InvalidValue(
                f"gradients: the target gradient of {target.name!r} "
                f"has shape {grad.shape}, not {target.shape}."
            )
        return grad.name
    seed = names.seed(target.name)
    block.append_op("fill_any_like", {"X": target}, {"Out": seed}, {"value": 1.0, DEVICE: ""})
    return seed


def _append(block: Block, grads: list[GradOp], callbacks: Sequence[Callback] | None) -> None:
    context: dict[str, Any] = {}
    for op in grads:
        if op.body is not None:
            _declare_above(op)
            _declare_arrays(block, op.body)
            _append(op.attrs["sub_block"], op.body, callbacks)
        _declare_inside(block, op)
        context |= op.of
        appended = block.append_op(op.type, op.inputs, op.outputs, {DEVICE: "", **op.attrs})
        context["__current_op_desc__"] = appended
        for name in set(op.writes()).intersection(op.of):
            if block.var_recursive(op.of[name]).type == VarType.LOD_TENSOR_ARRAY:
                block.var_recursive(name).desc.set_type(VarType.LOD_TENSOR_ARRAY)
        for callback in callbacks or ():
            callback(block, context)


def _declare_above(op: GradOp) -> None:
    """Declare gradients that have other names around a block than the block reads them by.

    Those of arrays that only the block writes and reads have the same name: they begin empty, around it.
    """
    block = op.attrs["sub_block"]
    for name, variable in op.of.items():
        inside = grad_name(variable)
        if name not in op.read() or block.find_var_recursive(inside) is not None:
            continue
        like = block.var_recursive(variable)
        if name != inside:
            block.create_var(name=inside, shape=like.shape, dtype=like.dtype)
        elif like.type == VarType.LOD_TENSOR_ARRAY:
            around = block.program.block(block.parent_idx)
            around.create_var(name=name, shape=like.shape, dtype=like.dtype, type=like.type)


def _declare_inside(block: Block, op: GradOp) -> None:
    """Declare gradients of a block's own variables that have the name of another one around it.

    A step of a sequence has the sequence's name, which may have a gradient already.
    """
    for name in op.writes():
        variable = block.find_var_recursive(op.of[name]) if name in op.of else None
        if variable is None or name in block.vars or name in variable.block.vars:
            continue
        if variable.block.find_var_recursive(name) is not None:
            block.create_var(name=name, shape=variable.shape, dtype=variable.dtype)


def _declare_arrays(block: Block, body: list[GradOp]) -> None:
    """Declare gradients of arrays that only rounds of a loop read, one from another."""
    for name in {name for op in body for name in op.read()}:
        variable = block.find_var_recursive(name.partition(GRAD_SUFFIX)[0])
        array = variable is not None and variable.type == VarType.LOD_TENSOR_ARRAY
        if array and variable is not None and block.find_var_recursive(name) is None:
            block.create_var(name=name, type=variable.type, dtype=variable.dtype)


def _pairs(
    program: ProgramBlocks, block: Block, parameter_list: Any, names: GradientNames, first: int
) -> list[tuple[Parameter, Variable]]:
    """Return the parameters that got a gradient, and mark the last op that writes each."""
    if parameter_list is None:
        parameters = [p for p in program.all_parameters() if p.trainable]
    else:
        parameters = [
            program.global_block().var_recursive(n)  # type: ignore[misc]
            for n in _names(parameter_list, "parameter_list")
        ]
    writer = {name: op for op in block.ops[first:] for name in op.output_arg_names}
    pairs = []
    for parameter in parameters:
        name = names.of(parameter.name)
        if name in writer:
            grad = block.var_recursive(name)
            marks = writer[name].attrs[ROLE_VAR]
            writer[name].attrs[ROLE_VAR] = [parameter.name, name, *marks]
            pairs.append((parameter, grad))
    program.touch()
    return pairs
