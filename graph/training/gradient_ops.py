"""Chooses the gradient ops that lead from a loss back to its operands, last op first, and wires their slots.

An op that holds a block (a branch, a loop, the step of a recurrent net) gets a gradient op that holds one, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...strategies.errors import Unsupported
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
from .gradient_sums import OVERWRITTEN, GradOp, accumulate
from .recompute import Segment, segments

WHILE, RECURRENT, BRANCH, INCREMENT = "while", "recurrent", "conditional_block", "increment"


def path_to(
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
    first = _first_reader(block, inputs) if inputs else 0
    for op in reversed(block.ops[first:]):
        if with_counters and op.type == INCREMENT:
            back.append(op)
        elif not needs.isdisjoint(op.output_arg_names):
            needs -= op.overwritten()
            reached = op.role & 0xFF in (OpRole.Forward, OpRole.Backward) or inputs
            grad = op.declaration.grad
            if reached and (op.type.endswith("_grad") or (grad and grad.exists(op.attrs))):
                back.append(op)
                needs.update(n for n in op.input_arg_names if n not in stopped)
    if not inputs:
        return back[::-1]
    reached_names = set(inputs)
    path = []
    for op in back[::-1]:
        if not reached_names.isdisjoint(op.input_arg_names):
            path.append(op)
            reached_names.update(op.output_arg_names)
        elif not reached_names.isdisjoint(op.output_arg_names):
            reached_names -= op.overwritten() - inputs
    return path


def _first_reader(block: Block, names: set[str]) -> int:
    """Return the position of the first op that reads one of these names, the number of ops if there is none."""
    for position, op in enumerate(block.ops):
        for read in op.inputs.values():
            if not names.isdisjoint(read):
                return position
    return len(block.ops)


class GradientNames:
    """Names the gradients of one backward pass: ``x@GRAD``; in later passes on a program, where that is taken,
    with a ``grad/`` in front for each pass.
    """

    def __init__(self, program: ProgramBlocks, block: Block) -> None:
        self._block = block
        self._prefix = "grad/" * program._appending_grad_times
        self._names: dict[str, str] = {}

    def inside(self, block: Block) -> GradientNames:
        """Return the names in the gradient block of ``block``, which no other pass shares."""
        names = GradientNames(block.program, block)
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


def backward_ops(
    path: Sequence[Operator], seeds: dict[str, str], stopped: set[str], names: GradientNames
) -> list[GradOp]:
    """Return the gradient ops of a path; ``seeds`` are the gradients of the targets, by target."""
    seed_of = {names.of(target): seed for target, seed in seeds.items()}
    return accumulate(_gradient_ops(path, _between(path), set(seed_of), stopped, names), seed_of)


def with_recomputation(
    block: Block,
    path: Sequence[Operator],
    checkpoints: list[str],
    reached: set[str],
    stopped: set[str],
    names: GradientNames,
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
    names: GradientNames,
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
            ops.append(GradOp(OVERWRITTEN, {"X": list(older)}, {}, {}))
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
    op: Operator, reached: set[str], stopped: set[str], names: GradientNames
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
    """Replace the gradient ops that write over the gradient that all of them read by one ``sum``, at the end.

    They are the gradient ops of a ``sum`` that writes over one of its operands and reads it several times.
    """
    in_place = [op for op in ops if not set(op.writes()).isdisjoint(op.read())]
    if len(in_place) < 2:
        return ops
    (name,) = in_place[0].writes()
    attrs = {key: in_place[0].attrs[key] for key in (CALLSTACK, NAMESCOPE, DEVICE)}
    total = GradOp("sum", {"X": [name] * len(in_place)}, {"Out": [name]}, attrs, in_place[0].of)
    return [*(op for op in ops if op not in in_place), total]


def _add_body(
    candidate: GradOp, op: Operator, reached: set[str], stopped: set[str], names: GradientNames
) -> list[str]:
    """Give the gradient op of an op that holds a block a block of gradient ops.

    The block lacks gradients that no op around it computes; those of a step's results are 0 then. Return the
    gradients that must exist before it, because each round passes them to the round before.
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
        handed = {name for name in handed if not forward.has_array(name)}
    else:
        path = path_to(forward, targets, set(), stopped)
        if op.type == RECURRENT:
            reads = {name for inner in path for name in inner.input_arg_names} - stopped
            _check_written_around(op, reads & _written_around(op))
        grads = _gradient_ops(path, forward.ops, set(map(grad_name, targets)), stopped, inside)
        handed = set()
    arriving = handed | {
        name for name in targets if names.of(name) in reached and not forward.has_array(name)
    }
    if op.type != RECURRENT:
        grads += _ended(op, grads)
    candidate.body = accumulate(grads, {}, forward.idx, map(grad_name, arriving))
    candidate.attrs["sub_block"] = block
    program._rollback()
    if op.type != WHILE:
        return []
    _wire_loop(candidate, op, reached, names)
    return [name for name in candidate.inputs["Out@GRAD"] if candidate.of[name] in handed]


def _ended(op: Operator, grads: Sequence[GradOp]) -> list[GradOp]:
    """Return the ops that zero the gradients of values that a block read and overwrote, where none is left.

    What stood there before the block has no part in those that the names hold.
    """
    last: dict[str, bool] = {}
    for grad in grads:
        last |= dict.fromkeys(grad.read() if grad.type == OVERWRITTEN else (), True)
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
    op: Operator, targets: set[str], stopped: set[str], names: GradientNames
) -> tuple[list[GradOp], set[str]]:
    """Return the gradient ops of a loop's block: of what a round writes and the next one reads, too.

    With them return the names of the latter.
    """
    forward, program = op.attrs["sub_block"], op.block.program
    carried = set(op.output("Out")).intersection(op.input("X")) - stopped
    first = len(program.blocks)
    while True:
        path = path_to(forward, targets, set(), stopped, with_counters=True)
        grads = _gradient_ops(path, forward.ops, set(map(grad_name, targets)), stopped, names)
        writes = {name for grad in grads for name in grad.writes()}
        more = {name for name in carried - targets if grad_name(name) in writes}
        if not more:
            return grads, targets & carried
        targets = targets | more
        del program.blocks[first:]  # those of the attempt


def _wire_loop(candidate: GradOp, op: Operator, reached: set[str], names: GradientNames) -> None:
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
    op: Operator, grad: Grad, index: int | None, stopped: set[str], names: GradientNames
) -> GradOp:
    """Fill the gradient op's slots with the op's names and those of their gradients."""
    slots = _Slots(op, grad, names)
    omitted = set(op.attrs[grad.without]) if grad.without else set()
    inputs = {
        slot: [n for source in sources.split("+") for n in slots.read(slot, source)]
        for slot, sources in grad.reads().items()
    }
    inputs = {slot: [n for n in ns if n not in omitted] for slot, ns in inputs.items()}
    outputs = {
        slot: slots.written(source, index, stopped) for slot, source in grad.writes().items()
    }
    attrs = grad.attributes({k: v for k, v in op.attrs.items() if k in op.declaration.attrs})
    attrs[CALLSTACK] = op.attrs.get(CALLSTACK, [""])
    attrs[NAMESCOPE] = op.attrs.get(NAMESCOPE, "/")
    attrs[DEVICE] = op.attrs.get(DEVICE, "")
    return GradOp(
        grad.type,
        {slot: ns for slot, ns in inputs.items() if ns},
        {slot: ns for slot, ns in outputs.items() if any(n != EMPTY_VAR for n in ns)},
        attrs,
        slots.of,
    )


class _Slots:
    """The names in the slots of a gradient op; ``of`` maps those of gradients to their variables."""

    def __init__(self, op: Operator, grad: Grad, names: GradientNames) -> None:
        slope = declaration(grad.type)
        assert slope is not None
        self.of: dict[str, str] = {}
        self._op, self._names = op, names
        self._required = {slot.name for slot in slope.input_slots if not slot.optional}

    def read(self, slot: str, source: str) -> list[str]:
        """Return the names in an input slot: of the op's slot ``source``, or of gradients of its results."""
        op = self._op
        if source in op.inputs or source in op.outputs:
            variables = op.inputs.get(source) or op.outputs[source]
            return [name for name in variables if name != EMPTY_VAR]
        result = source.removesuffix(GRAD_SUFFIX)
        variables = op.outputs.get(result, [])
        if result == source or (set(variables) <= {EMPTY_VAR} and slot not in self._required):
            return []
        # Of a result that was not computed the gradient is zero; it has the shape of what that belongs to.
        computed = [name for name in variables if name != EMPTY_VAR]
        like = op.inputs.get(result.removesuffix(GRAD_SUFFIX)) or computed[:1] * len(variables)
        pairs = list(zip(variables or [EMPTY_VAR] * len(like), like, strict=True))
        absent = {x: self._names.of(f"{x}{EMPTY_VAR}") for name, x in pairs if name == EMPTY_VAR}
        self.of.update((gradient, x) for x, gradient in absent.items())
        self._gradients(computed)
        return [absent[x] if name == EMPTY_VAR else self._names.of(name) for name, x in pairs]

    def written(self, source: str, index: int | None, stopped: set[str]) -> list[str]:
        """Return the names of the gradients of an input slot, or of its variable number ``index``."""
        variables = self._op.inputs.get(source.removesuffix(GRAD_SUFFIX), [])
        variables = variables if index is None else [variables[index]]
        pairs = zip(self._gradients(variables), variables, strict=True)
        return [EMPTY_VAR if name in stopped else gradient for gradient, name in pairs]

    def _gradients(self, variables: Iterable[str]) -> list[str]:
        self.of.update((self._names.of(name), name) for name in variables)
        return [self._names.of(name) for name in variables]


def _zeros(
    candidate: GradOp, incoming: list[str], reached: set[str], names: GradientNames
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
