"""Backward: appends the gradient ops of a program to it, Paddle's way.

``append_backward`` walks the ops that lead to a loss in reverse and emits each one's gradient op; a gradient
written more than once is written under other names and summed just before its first reader. An op that holds a
block (a branch, the step of a recurrent net) gets a gradient op with a block of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ...strategies.errors import InvalidType, InvalidValue, Unsupported
from ...strategies.types import VarType
from ..ops.registry import Grad, declaration
from ..program.block import Block, ProgramBlocks
from ..program.operator import Operator
from ..program.role import (
    CALLSTACK,
    DEVICE,
    EMPTY_VAR,
    GRAD_SUFFIX,
    NAMESCOPE,
    ROLE,
    ROLE_VAR,
    OpRole,
    grad_name,
    recomputed_name,
)
from ..program.unique_name import generate
from ..program.variable import Parameter, Variable
from .recompute import Segment, segments
from .single_assignment import name_overwritten_values

WHILE, RECURRENT, BRANCH, INCREMENT = "while", "recurrent", "conditional_block", "increment"
_OVERWRITTEN = "overwritten"  # names gradients that go no further: what is written behind it is of older values
Callback = Callable[[Block, dict[str, Any]], None]


@dataclass
class GradOp:
    """A gradient op before it is appended: names by slot, attributes, and the forward op's names."""

    type: str
    inputs: dict[str, list[str]]
    outputs: dict[str, list[str]]
    attrs: dict[str, Any]
    of: dict[str, str] = field(default_factory=dict)  # gradient name -> forward name
    recomputes: bool = False  # it is a forward op, computed again
    body: list[GradOp] | None = None  # of its block, the attribute ``sub_block``

    def read(self) -> list[str]:
        """Names read."""
        return [name for names in self.inputs.values() for name in names]

    def writes(self) -> list[str]:
        """Names written, without those of gradients that are not computed."""
        return [n for names in self.outputs.values() for n in names if n != EMPTY_VAR]

    def rename(self, slots: dict[str, list[str]], old: str, new: str) -> None:
        """Replace a name in inputs or outputs."""
        if old in self.of:
            self.of[new] = self.of[old]
        for slot, names in slots.items():
            slots[slot] = [new if name == old else name for name in names]


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
        checkpoints: variables (or names) whose values are kept from the forward pass; what lies between them
            is computed again where gradients need it, which saves memory (see ``recompute.py``).

    Raises:
        InvalidType: an argument of the wrong type.
    """
    _check_arguments(loss, parameter_list, callbacks)
    if checkpoints is not None and not isinstance(checkpoints, (list, tuple, set)):
        raise InvalidType("append_backward: checkpoints must be a list of Variables or names.")
    marks = _names(checkpoints or (), "checkpoints")
    program = loss.block.program
    block = program.global_block()
    source = _producer(block, loss)
    source.attrs[ROLE] = source.role | int(OpRole.Loss)
    stopped = _stopped(program, no_grad_set)
    with program.role_guard(OpRole.Backward, []):
        program._appending_grad_times += 1
        path = _path(block, {loss.name}, set(), stopped)
        older = name_overwritten_values(block, path)
        stopped.update(value for name in stopped & older.keys() for value in older[name])
        first = len(block.ops)
        names = _GradientNames(program, block)
        seed = names.seed(loss.name)
        _append_seed(block, loss, seed, source.attrs[DEVICE])
        seed_of = {names.of(loss.name): seed}
        grads = _with_recomputation(block, path, marks, set(seed_of), stopped, names)
        grads = _accumulate(grads, seed_of)
        _append(block, grads, callbacks)
    return _pairs(program, block, parameter_list, names, first)


def gradients(
    targets: Any, inputs: Any, target_gradients: Any = None, no_grad_set: Any = None
) -> list[Variable | None]:
    """Return the gradients of ``targets`` (summed) with respect to each input; None where unreachable.

    Of an input that is written again it is the gradient of the first of its values that has one.

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
        path = _path(block, {t.name for t in targets}, input_names, stopped)
        older = name_overwritten_values(block, path)
        stopped.update(value for name in stopped & older.keys() for value in older[name])
        first = len(block.ops)
        names = _GradientNames(program, block)
        seeds = {
            t.name: _target_seed(block, t, g, names)
            for t, g in zip(targets, target_grads, strict=True)
        }
        _append(block, _backward_ops(path, seeds, stopped, names), None)
    computed = {name for op in block.ops[first:] for name in op.output_arg_names}
    results: list[Variable | None] = []
    for v in inputs:
        values = map(names.of, (*older.get(v.name, ()), v.name))
        name = next((n for n in values if n in computed), seeds.get(v.name))
        results.append(None if name is None else block.vars[name])
    return results


# -- the path to differentiate ----------------------------------------------------------------------


def _check_arguments(loss: Any, parameter_list: Any, callbacks: Any) -> None:
    if not isinstance(loss, Variable):
        raise InvalidType(f"append_backward: loss must be a Variable, got {type(loss).__name__}.")
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
        if not isinstance(item, (str, Variable)):
            raise InvalidType(f"{argument} holds Variables or names, got {item!r}.")
        names.append(item if isinstance(item, str) else item.name)
    return names


def _variables(value: Any, argument: str) -> list[Variable]:
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    for item in items:
        if not isinstance(item, Variable):
            raise InvalidType(f"gradients: {argument} must be Variables, got {item!r}.")
    return items


def _target_gradients(target_gradients: Any) -> list[Variable | None]:
    items = (
        list(target_gradients)
        if isinstance(target_gradients, (list, tuple))
        else [target_gradients]
    )
    for item in items:
        if item is not None and not isinstance(item, Variable):
            raise InvalidType(
                f"gradients: target_gradients must be Variables or None, got {item!r}."
            )
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


def _path(
    block: Block,
    targets: set[str],
    inputs: set[str],
    stopped: set[str],
    with_counters: bool = False,
) -> list[Operator]:
    """Return the ops that lead to the targets (from the inputs, if any), in program order.

    Gradient ops without a gradient of their own are among them: see :func:`_gradient_ops`.
    """
    needs = {name for name in targets}
    back: list[Operator] = []
    for op in reversed(block.ops):
        reached = op.role & 0xFF in (OpRole.Forward, OpRole.Backward) or inputs
        grad = op.declaration.grad
        differentiable = op.type.endswith("_grad") or (grad is not None and grad.exists(op.attrs))
        if with_counters and op.type == INCREMENT:
            back.append(op)
        elif reached and differentiable and needs.intersection(op.output_arg_names):
            back.append(op)
            needs -= op.overwritten()
            needs.update(n for n in op.input_arg_names if n not in stopped)
        else:
            needs -= op.overwritten()
    if not inputs:
        return back[::-1]
    reached_names = set(inputs)
    path = []
    for op in back[::-1]:
        if reached_names.intersection(op.input_arg_names):
            path.append(op)
            reached_names.update(op.output_arg_names)
        else:
            reached_names -= op.overwritten() - inputs
    return path


# -- gradient ops -----------------------------------------------------------------------------------


class _GradientNames:
    """Names the gradients of one backward pass: ``x@GRAD``; in later passes on a program, where that is taken,
    with a ``grad/`` in front for each pass.
    """

    def __init__(self, program: ProgramBlocks, block: Block) -> None:
        self._block = block
        self._prefix = "grad/" * program._appending_grad_times
        self._names: dict[str, str] = {}

    def inside(self, block: Block) -> _GradientNames:
        """Return the names in the gradient block of ``block``, which no other pass shares."""
        names = _GradientNames(block.program, block)
        names._prefix = ""
        return names

    def of(self, name: str) -> str:
        """Return the name of a variable's gradient."""
        if name not in self._names:
            gradient = grad_name(name)
            is_taken = self._block.has_var(gradient)
            self._names[name] = f"{self._prefix}{gradient}" if is_taken else gradient
        return self._names[name]

    def seed(self, name: str) -> str:
        """Return a name for the gradient of a target, which is where the pass begins."""
        seed = grad_name(name)
        return generate(seed) if self._block.has_var(seed) else seed

    def source(self, name: str) -> str:
        """Return the variable of the forward pass of which ``name`` is the gradient, of any order."""
        first = name.partition(GRAD_SUFFIX)[0].rpartition("grad/")[2]
        return name if self._block.find_var_recursive(first) is None else first


def _backward_ops(
    path: Sequence[Operator], seeds: dict[str, str], stopped: set[str], names: _GradientNames
) -> list[GradOp]:
    """Return the gradient ops of a path; ``seeds`` are the gradients of the targets, by target."""
    seed_of = {names.of(target): seed for target, seed in seeds.items()}
    return _accumulate(_gradient_ops(path, _between(path), set(seed_of), stopped, names), seed_of)


def _with_recomputation(
    block: Block,
    path: Sequence[Operator],
    checkpoints: list[str],
    reached: set[str],
    stopped: set[str],
    names: _GradientNames,
) -> list[GradOp]:
    """Return the gradient ops of a path, and before those of each segment the ops that it repeats."""
    ops: list[GradOp] = []
    for segment in segments(block, path, checkpoints):
        grads = _gradient_ops(segment.ops, _between(segment.ops), reached, stopped, names)
        for grad in grads:
            if grad.body is None:  # a block reads what its forward block left
                grad.inputs = _renamed(grad.inputs, segment.again)
        reads = {name for grad in grads for name in grad.read()}
        ops += [_repeated(op, segment) for op in segment.repeated(reads)] + grads
    return ops


def _repeated(op: Operator, segment: Segment) -> GradOp:
    """Return a forward op as it is computed again: none of its results takes the place of a kept one."""
    own = {n: recomputed_name(n, segment.number) for n in op.output_arg_names if n != EMPTY_VAR}
    attrs = {name: value for name, value in op.attrs.items() if name not in (ROLE, ROLE_VAR)}
    return GradOp(
        op.type,
        _renamed(op.inputs, segment.again),
        _renamed(op.outputs, own),
        attrs,
        recomputes=True,
    )


def _renamed(slots: Mapping[str, list[str]], new: Mapping[str, str]) -> dict[str, list[str]]:
    return {slot: [new.get(name, name) for name in names] for slot, names in slots.items()}


def _gradient_ops(
    path: Sequence[Operator],
    around: Sequence[Operator],
    reached: set[str],
    stopped: set[str],
    names: _GradientNames,
) -> list[GradOp]:
    """Return the gradient ops of a path, last op first, without those that no gradient reaches.

    The names of the gradients that they write are added to those ``reached``. Where an op overwrites a
    variable, the gradient of what stood there before begins anew: also where it is not of the path, but of the
    ops ``around`` it, and where a branch does, if it is taken.

    Raises:
        Unsupported: a gradient op has no gradient of its own.
    """
    members = {id(op) for op in path}
    ops: list[GradOp] = []
    for op in reversed(around):
        if op.type == RECURRENT:
            _check_written_around(op, {n for n in _written_around(op) if names.of(n) in reached})
        if id(op) in members:
            ops += _gradient_ops_of(op, reached, stopped, names)
        elif op.type in (BRANCH, WHILE):
            ops += _gradient_ops_of(op, reached, stopped.union(op.input_arg_names), names)
        older = reached.intersection(map(names.of, op.overwritten()))
        if older:
            ops.append(GradOp(_OVERWRITTEN, {"X": list(older)}, {}, {}))
            reached -= older
    return ops


def _between(path: Sequence[Operator]) -> list[Operator]:
    """Return the ops of a block from the first of a path to its last."""
    if not path:
        return []
    ops = path[0].block.ops
    first, last = (next(i for i, op in enumerate(ops) if op is end) for end in (path[0], path[-1]))
    return ops[first : last + 1]


def _gradient_ops_of(
    op: Operator, reached: set[str], stopped: set[str], names: _GradientNames
) -> list[GradOp]:
    grad = op.declaration.grad
    if op.type == INCREMENT and op.block.idx and grad is None:
        return [_counted_back(op)]
    if grad is None or not grad.exists(op.attrs):
        if reached.intersection(map(names.of, op.output_arg_names)):
            raise Unsupported(
                f"{op.type} has no gradient of its own, so nothing that depends on its results can be "
                "differentiated. Set stop_gradient on them if they are to be taken as constants."
            )
        return []
    ops: list[GradOp] = []
    for index in _instances(op, grad):
        candidate = _wire(op, grad, index, stopped, names)
        incoming = [n for n in candidate.read() if n in candidate.of]
        ends = op.type in (BRANCH, WHILE)  # the gradients of what it overwrites
        if not (candidate.writes() or ends) or not any(n in reached for n in incoming):
            continue
        if isinstance(op.attrs.get("sub_block"), Block):
            for name, gradients in candidate.inputs.items():
                if op.type == BRANCH and name == "Out@GRAD":
                    gradients[:] = [g if g in reached else EMPTY_VAR for g in gradients]
            incoming = _add_body(candidate, op, reached, stopped, names)
        ops += _zeros(candidate, incoming, reached, names)
        ops.append(candidate)
        reached.update(candidate.writes())
    return _in_place_last(ops)


def _in_place_last(ops: list[GradOp]) -> list[GradOp]:
    """Compute last, at once, what takes the place of the gradient that all of an op's gradient ops read.

    They are those of ``sum``, one for each operand, of which several may be the variable that it writes.
    """
    in_place = [op for op in ops if not set(op.writes()).isdisjoint(op.read())]
    if len(in_place) < 2:
        return ops
    (name,) = in_place[0].writes()
    attrs = {key: in_place[0].attrs[key] for key in (CALLSTACK, NAMESCOPE, DEVICE)}
    total = GradOp("sum", {"X": [name] * len(in_place)}, {"Out": [name]}, attrs, in_place[0].of)
    return [*(op for op in ops if op not in in_place), total]


def _add_body(
    candidate: GradOp, op: Operator, reached: set[str], stopped: set[str], names: _GradientNames
) -> list[str]:
    """Give the gradient op of an op that holds a block a block of its own, with the gradient ops of that.

    It leaves out the gradients that no op around it computes; those of a step's results are 0 then. Return
    those that it must find, because a round hands them to the one before.
    """
    forward, program = op.attrs["sub_block"], op.block.program
    block = program._create_block()
    block.forward_block_idx = forward.idx
    inside = names.inside(forward)
    targets = set(op.output_arg_names)
    if "states" in op.attrs:  # the next step computes their gradients
        targets.update(op.attrs["states"])
    else:
        targets = {name for name in targets if names.of(name) in reached}
    if op.type == WHILE:
        grads, handed = _loop_gradients(op, targets, stopped, inside)
        handed = {name for name in handed if not _is_array(forward, name)}
    else:
        path = _path(forward, targets, set(), stopped)
        if op.type == RECURRENT:
            reads = {name for inner in path for name in inner.input_arg_names} - stopped
            _check_written_around(op, reads & _written_around(op))
        grads = _gradient_ops(path, forward.ops, set(map(grad_name, targets)), stopped, inside)
        handed = set()
    arriving = handed | {
        name for name in targets if names.of(name) in reached and not _is_array(forward, name)
    }
    if op.type != RECURRENT:
        grads += _ended(op, grads)
    candidate.body = _accumulate(grads, {}, forward.idx, map(grad_name, arriving))
    candidate.attrs["sub_block"] = block
    program._rollback()
    if op.type != WHILE:
        return []
    _wire_loop(candidate, op, reached, names)
    return [name for name in candidate.inputs["Out@GRAD"] if candidate.of[name] in handed]


def _ended(op: Operator, grads: Sequence[GradOp]) -> list[GradOp]:
    """Return the ops that fill with zeros what a block's gradients leave of values that it read and overwrote.

    What stood there before the block has no part in those that the names hold.
    """
    last: dict[str, bool] = {}
    for grad in grads:
        last |= dict.fromkeys(grad.read() if grad.type == _OVERWRITTEN else (), True)
        last |= dict.fromkeys(grad.writes(), False)
    block, written, read = op.attrs["sub_block"], set[str](), set[str]()
    for inner in block.ops:
        read.update(name for name in inner.input_arg_names if name not in written)
        written |= inner.overwritten()
    operands = [name for names in op.inputs.values() for name in names if name in read]
    return [
        GradOp("fill_zeros_like", {"X": [x]}, {"Out": [grad_name(x)]}, {}, {grad_name(x): x})
        for x in dict.fromkeys(operands)
        if last.get(grad_name(x)) and x not in block.vars
    ]


def _written_around(op: Operator) -> set[str]:
    """Return the temporaries around a recurrent op that its block writes: its results do not name them."""
    block = op.attrs["sub_block"]
    names = {name for inner in block.ops for name in inner.output_arg_names} - block.vars.keys()
    variables = {name: block.find_var_recursive(name) for name in names}
    return {n for n, v in variables.items() if v is not None and not v.persistable}


def _check_written_around(op: Operator, names: set[str]) -> None:
    """Refuse gradients of variables around a recurrent op that its steps write.

    Raises:
        Unsupported: there are some.
    """
    if names:
        raise Unsupported(
            f"{op.type}: a step writes {min(names)!r}, which stands around it, so it has no gradient: hand it "
            f"from step to step as a memory, return it with step_output, or set its stop_gradient. {op.where}"
        )


def _loop_gradients(
    op: Operator, targets: set[str], stopped: set[str], names: _GradientNames
) -> tuple[list[GradOp], set[str]]:
    """Return the gradient ops of a loop's block: of what a round writes and the next one reads, too.

    With them return the names of the latter.
    """
    forward, program = op.attrs["sub_block"], op.block.program
    carried = set(op.output("Out")).intersection(op.input("X")) - stopped
    first = len(program.blocks)
    while True:
        path = _path(forward, targets, set(), stopped, with_counters=True)
        grads = _gradient_ops(path, forward.ops, set(map(grad_name, targets)), stopped, names)
        writes = {name for grad in grads for name in grad.writes()}
        more = {name for name in carried - targets if grad_name(name) in writes}
        if not more:
            return grads, targets & carried
        targets = targets | more
        del program.blocks[first:]  # those of the attempt


def _wire_loop(candidate: GradOp, op: Operator, reached: set[str], names: _GradientNames) -> None:
    """Leave out the gradients that no round computes, reads or ends."""
    body = candidate.body or []
    writes = {name for grad in body for name in grad.writes()}
    reads = {name for grad in body for name in grad.read()}
    operands = op.input("X")
    pairs = zip(candidate.outputs.get("X@GRAD", [EMPTY_VAR] * len(operands)), operands, strict=True)
    candidate.outputs["X@GRAD"] = [g if grad_name(x) in writes else EMPTY_VAR for g, x in pairs]
    ended = {x for inner in op.attrs["sub_block"].ops for x in inner.overwritten()}
    ended = {x for x in ended.difference(operands) if names.of(x) in reached}
    results = [x for x in op.output("Out") if grad_name(x) in reads or x in ended]
    candidate.inputs["Out@GRAD"] = [names.of(x) for x in results]
    candidate.attrs["original_output_grad"] = [grad_name(x) for x in results]


def _counted_back(op: Operator) -> GradOp:
    """Return the op that takes back a step of a loop's counter."""
    attrs = {"step": -op.attrs["step"], CALLSTACK: op.attrs.get(CALLSTACK, [""])}
    return GradOp(INCREMENT, {"X": op.output("Out")}, {"Out": op.input("X")}, attrs)


def _instances(op: Operator, grad: Grad) -> list[int | None]:
    """Return [None] for one gradient op, or an index for each variable of the slot that ``grad`` names."""
    return list(range(len(op.input(grad.each)))) if grad.each else [None]


def _wire(
    op: Operator, grad: Grad, index: int | None, stopped: set[str], names: _GradientNames
) -> GradOp:
    """Fill the gradient op's slots with the op's names and those of their gradients."""
    of: dict[str, str] = {}
    slope = declaration(grad.type)
    assert slope is not None
    required = {slot.name for slot in slope.input_slots if not slot.optional}
    omitted = set(op.attrs[grad.without]) if grad.without else set()

    def gradients_of(variables: Iterable[str]) -> list[str]:
        of.update((names.of(name), name) for name in variables)
        return [names.of(name) for name in variables]

    def read(slot: str, source: str) -> list[str]:
        if source in op.inputs or source in op.outputs:
            variables = op.inputs.get(source) or op.outputs[source]
            return [name for name in variables if name != EMPTY_VAR]
        result = source.removesuffix(GRAD_SUFFIX)
        variables = op.outputs.get(result, [])
        if result == source or (set(variables) <= {EMPTY_VAR} and slot not in required):
            return []
        # Of a result that was not computed the gradient is zero; it has the shape of what that belongs to.
        computed = [name for name in variables if name != EMPTY_VAR]
        like = op.inputs.get(result.removesuffix(GRAD_SUFFIX)) or computed[:1] * len(variables)
        pairs = list(zip(variables or [EMPTY_VAR] * len(like), like, strict=True))
        absent = {x: names.of(f"{x}{EMPTY_VAR}") for name, x in pairs if name == EMPTY_VAR}
        of.update((gradient, x) for x, gradient in absent.items())
        gradients_of(computed)
        return [absent[x] if name == EMPTY_VAR else names.of(name) for name, x in pairs]

    def written(source: str) -> list[str]:
        variables = op.inputs.get(source.removesuffix(GRAD_SUFFIX), [])
        variables = variables if index is None else [variables[index]]
        pairs = zip(gradients_of(variables), variables, strict=True)
        return [EMPTY_VAR if name in stopped else gradient for gradient, name in pairs]

    inputs = {
        slot: [n for source in sources.split("+") for n in read(slot, source) if n not in omitted]
        for slot, sources in grad.reads().items()
    }
    outputs = {slot: written(source) for slot, source in grad.writes().items()}
    outputs = {s: ns for s, ns in outputs.items() if any(n != EMPTY_VAR for n in ns)}
    attrs = grad.attributes({k: v for k, v in op.attrs.items() if k in op.declaration.attrs})
    attrs[CALLSTACK] = op.attrs.get(CALLSTACK, [""])
    attrs[NAMESCOPE] = op.attrs.get(NAMESCOPE, "/")
    attrs[DEVICE] = op.attrs.get(DEVICE, "")
    inputs = {s: ns for s, ns in inputs.items() if ns}
    return GradOp(grad.type, inputs, outputs, attrs, of)


def _zeros(
    candidate: GradOp, incoming: list[str], reached: set[str], names: _GradientNames
) -> list[GradOp]:
    """Return the ops that fill gradients with zero which this op reads and no op computes."""
    fills = []
    for name in dict.fromkeys(incoming):
        if name not in reached:
            forward = candidate.of[name]
            like = names.source(forward)
            fills.append(
                GradOp("fill_zeros_like", {"X": [like]}, {"Out": [name]}, {}, {name: forward})
            )
            reached.add(name)
    return fills


def _is_array(block: Block, name: str) -> bool:
    variable = block.find_var_recursive(name)
    return variable is not None and variable.type == VarType.LOD_TENSOR_ARRAY


def _accumulate(
    grads: list[GradOp], seeds: dict[str, str], block: int = 0, arriving: Iterable[str] = ()
) -> list[GradOp]:
    """Give each write of a name written more than once its own, and sum them before the first reader.

    ``seeds`` hold what the gradients of targets (by name) begin with; ``block`` is the number of the block of
    which these are the gradient ops. Gradients ``arriving`` are there before the first op.
    """
    writers: dict[str, list[GradOp]] = defaultdict(list)
    parts: dict[str, list[str]] = {name: [seed] for name, seed in seeds.items()}
    parts |= {name: [name] for name in arriving}
    numbers: dict[str, Iterator[int]] = defaultdict(count)
    complete: set[str] = set()
    forward: dict[str, str] = {}  # of what a sum of parts is the gradient, by its name
    result: list[GradOp] = []
    for op in grads:
        forward |= op.of
        if op.type == _OVERWRITTEN:
            complete.update(op.read())
            continue
        reads = list(dict.fromkeys(op.read()))
        for name in reads:
            if len(parts.get(name, ())) > 1:
                result.append(_sum(name, parts[name], forward))
                # An op that may leave the variable as it was reads a part of what stood there before.
                parts[name], writers[name] = [name], result[-1:]
            elif name in seeds and parts.get(name) == [seeds[name]]:
                op.rename(op.inputs, name, seeds[name])
                op.of[seeds[name]] = op.of[name]
        # In Paddle's order, which is that of the sums at the end.
        for slot, names in () if op.recomputes else sorted(op.outputs.items()):
            for i, name in enumerate(names):
                if name == EMPTY_VAR:
                    continue
                if name in reads:
                    # The op wrote over its operand: this is another value's gradient, no second part.
                    parts[name] = [name]
                    writers[name].append(op)
                    continue
                if name in complete:
                    complete.remove(name)
                    parts[name] = []
                parts_so_far = parts.setdefault(name, [])
                if not parts_so_far:
                    writers[name] = []
                if parts_so_far == [name] and writers[name]:
                    first = f"{name}@RENAME@block{block}@{next(numbers[name])}"
                    for writer in writers[name]:
                        writer.rename(writer.outputs, name, first)
                    # of a variable that was written again in between, or that the op itself writes
                    for reader in _behind(writers[name][0], [*result, op]):
                        reader.rename(reader.inputs, name, first)
                    parts_so_far[0] = first
                own = f"{name}@RENAME@block{block}@{next(numbers[name])}" if parts_so_far else name
                op.outputs[slot][i] = own
                parts_so_far.append(own)
                writers[name].append(op)
        result.append(op)
    result += [_sum(name, names, forward) for name, names in parts.items() if len(names) > 1]
    return result


def _behind(writer: GradOp, ops: list[GradOp]) -> list[GradOp]:
    """Return the ops that stand behind one of them."""
    return ops[next(i for i, op in enumerate(ops) if op is writer) + 1 :]


def _sum(name: str, parts: list[str], forward: Mapping[str, str]) -> GradOp:
    of = {name: forward[name]} if name in forward else {}
    return GradOp("sum", {"X": list(parts)}, {"Out": [name]}, {}, of)


# -- appending --------------------------------------------------------------------------------------


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
    block: Block, target: Variable, grad: Variable | None, names: _GradientNames
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
                block.var_recursive(name).type = VarType.LOD_TENSOR_ARRAY
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
    program: ProgramBlocks, block: Block, parameter_list: Any, names: _GradientNames, first: int
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
