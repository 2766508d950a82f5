"""Read branches into a graph: light ones are computed in each step, others where they are taken.

A write of a light ``conditional_block`` to a variable around it becomes a ``where`` between the new value and
the old one (if-conversion: Allen, Kennedy, Porterfield and Warren, "Conversion of control dependence to data
dependence", POPL 1983). The gradient of the side that is not taken is 0, whatever was computed for it. A branch
that costs more than cutting a step, that may fail or never end, or that has side effects becomes a loop
(``data_loops.py``) of one round or none.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest
from math import prod

from ...strategies.errors import ShapeError, Unsupported
from ...strategies.types import VarType
from ..ops.blocks import either
from ..ops.printing import PRINT, PRINT_IF
from ..ops.python_function import PY_FUNC
from ..ops.registry import Spec
from ..ops.trainer_collective import MEETINGS
from ..program.block import Block
from ..program.operator import Operator
from ..program.role import EMPTY_VAR, differentiated_name, grad_name
from .block_reader import Scope, begins_with_write, block_of, finished, node_of
from .data_loops import DataLoop, DataLoops, Rounds
from .graph import TEMP, Node, Value

_FLAG = Spec((1,), VarType.BOOL)
_TAKEN = "taken"
_LIGHT = {
    *("assign_value", "cast", "concat", "dropout", "fill_constant", "fill_zeros_like"),
    *("gaussian_random", "increment", "mean", "reduce_all", "reduce_any", "reduce_max"),
    *("reduce_mean", "reduce_min", "reduce_prod", "reduce_sum", "scale", "select_input", "shape"),
    *("size", "slice", "split", "stack", "sum", "uniform_random", "unstack", "where", PRINT),
}
_NO = {"shape": [1], "dtype": int(VarType.BOOL), "bool_values": [0]}


class Branches(DataLoops):
    """Reads branches, selections and their gradient ops.

    ``choices``: mask or condition -> flag [1]. ``skipped`` are results of branches without a value where the
    branch is not taken; ``sized`` are the names of results whose size depends on the branch taken.
    """

    def __init__(self) -> None:
        super().__init__()
        self.choices: dict[Value, Value] = {}
        self.skipped: set[Value] = set()
        self.sized: set[str] = set()

    def _condition(self, op: Operator) -> Generator[Node, None, Value]:
        """Return whether a branch is taken, a boolean of one element."""
        if not op.attrs.get("is_scalar_condition"):
            return (yield from self._where_rows_are(op))
        return (yield from self._flag(op, self._operand(op, "Cond")))

    def _flag(self, op: Operator, value: Value) -> Generator[Node, None, Value]:
        """Return a boolean of one element as [1]: that it has one may be known only when a step is bound."""
        shape = value.spec.shape
        if shape == _FLAG.shape:
            return value
        if -1 not in shape and prod(shape) != 1:
            raise Unsupported(
                f"{op.type}: takes one condition of one element, got {value.name!r} of shape {list(shape)}. "
                f"{op.where}"
            )
        if value not in self.choices:
            flag = self._new(f"{value.name}@FLAG", _FLAG)
            yield node_of(op, "condition", {"X": (value,)}, {"Out": (flag,)})
            self.choices[value] = flag
        return self.choices[value]

    def _where_rows_are(self, op: Operator) -> Generator[Node, None, Value]:
        """Return the flag that no operand of a branch for some rows of a batch is empty."""
        (scope,) = op.outputs["Scope"]
        flags: list[Value] = []
        for name in op.inputs.get("Input", ()):
            value = self._read(op.block, name)
            if value is not None and -1 in value.spec.shape:
                flags.append(self._new(f"{scope}@EMPTY{len(flags)}", _FLAG))
                yield node_of(op, "is_empty", {"X": (value,)}, {"Out": (flags[-1],)})
        empty = flags[0] if flags else self._new(f"{scope}@EMPTY", _FLAG)
        if not flags:
            yield node_of(op, "assign_value", {}, {"Out": (empty,)}, _NO)
        for k, flag in enumerate(flags[1:]):
            either = self._new(f"{scope}@ANY{k}", _FLAG)
            yield node_of(op, "logical_or", {"X": (empty,), "Y": (flag,)}, {"Out": (either,)})
            empty = either
        taken = self._new(f"{scope}@TAKEN", _FLAG)
        yield node_of(op, "logical_not", {"X": (empty,)}, {"Out": (taken,)})
        return taken

    def _branch(self, op: Operator) -> Iterator[Node]:
        """Read the body of a ``conditional_block``, then choose the values of the variables around it."""
        block = block_of(op)
        _check_effects(op, block)
        taken = yield from self._condition(op)
        if op.attrs.get("is_scalar_condition") and not _is_light(block):
            yield from self._branch_if_taken(op, taken)
            return
        for name in op.inputs.get("Input", ()):
            self._read(op.block, name)
        before = dict(self.current)
        with self._body(f"@BLOCK{block.idx}", {}):
            yield from self._printing_if(op, taken, self._nodes(block))
            scope = self._left(before, op.inputs.get("Input", ()))
            written = self.current
        for name in dict.fromkeys(op.outputs.get("Out", ())):
            value = written.get(name)
            if value is None or value is before.get(name):
                continue
            if name in before or op.block.var_recursive(name).persistable:
                old = self._value_of(op, name)
                _check_types(op, name, value.spec, old.spec)
                yield self._chosen(op, taken, value, old, name)
            else:  # Nothing may read it unless the branch is taken.
                result = self._result(op, name)
                self._share_levels(value, result)
                yield node_of(op, "assign", {"X": (value,)}, {"Out": (result,)})
        overwritten = {n: v for n, v in before.items() if n in op.outputs.get("Out", ())}
        for name in op.outputs.get("Scope", ()):
            self.scopes[name] = (scope, Scope(overwritten, {}), Scope({_TAKEN: taken}, {}))

    def _branch_if_taken(self, op: Operator, taken: Value) -> Iterator[Node]:
        """Read the body as that of a loop of one round, or of none."""
        (scope,) = op.outputs["Scope"]
        goes_on = f"{scope}@GOES_ON"
        outer_names = yield from self._touched(op)
        carried = [goes_on, *(name for name, written in outer_names.items() if written)]
        self.current[goes_on] = taken
        operands, states = yield from self._fed(op, outer_names, carried)

        def nodes() -> Iterator[Node]:
            yield from self._nodes(block_of(op))
            for name, old in operands.items():
                new = self.current[name]
                if name in carried and old is not None and new not in self.array_levels:
                    _check_types(op, name, new.spec, old.spec)
            over = self.current[goes_on] = self._new(f"{scope}@OVER", _FLAG)
            yield node_of(op, "assign_value", {}, {"Out": (over,)}, _NO)

        rounds = Rounds(scope, {name: name for name in carried}, nodes)
        yield from self._run_loop(op, rounds, operands, states)
        unwritten = (name for name, value in operands.items() if value is None)
        self.skipped |= {self.current[name] for name in unwritten if name in self.current}

    def _printing_if(self, op: Operator, taken: Value, nodes: Iterable[Node]) -> Iterator[Node]:
        """Yield the nodes of a branch; what prints among them does so only where the branch is taken."""
        for node in nodes:
            if node.op in (PRINT, PRINT_IF) and op.attrs.get("is_scalar_condition"):
                both = taken
                for inner in node.inputs.get("Condition", ()):
                    both = self._new(f"{inner}@AND@{taken}", _FLAG)
                    slots = {"X": (inner,), "Y": (taken,)}
                    yield node_of(op, "logical_and", slots, {"Out": (both,)})
                node = replace(node, op=PRINT_IF, inputs={**node.inputs, "Condition": (both,)})
            yield node

    def _branch_gradient(self, op: Operator) -> Iterator[Node]:
        """Read the gradient block of a branch, and choose between what it computes and 0."""
        forward = self._of(op, "Scope")
        if isinstance(forward, DataLoop):
            pairs = zip(op.inputs.get("Out", ()), op.inputs.get("Out@GRAD", ()), strict=False)
            behind = [(grad_name(x), name) for x, name in pairs if name != EMPTY_VAR]
            yield from self._gradient_on_data(op, forward, "Input", behind)
            return
        block, (scope, overwritten, condition) = block_of(op), forward
        taken = condition.values[_TAKEN]
        with self._body(f"@BLOCK{block.idx}", {**scope.values, **self._above(op, "Out")}):
            self._go_back(scope)
            yield from self._printing_if(op, taken, self._nodes(block))
            inner = self.current
        names = op.inputs.get("Input", ())
        # No operand has a gradient where the branch only ends those of what it overwrites.
        gradients = op.outputs.get("Input@GRAD", [EMPTY_VAR] * len(names))
        above, fresh = self._above(op, "Out"), begins_with_write(block)
        for operand, name in zip(names, gradients, strict=True):
            if name == EMPTY_VAR:
                continue
            if operand in self.arrays:
                raise Unsupported(
                    f"{op.type}: the array {operand!r} is read in a branch, through which it cannot be "
                    f"differentiated: read it before. {op.where}"
                )
            gradient = grad_name(operand)
            like, value = self._value_of(op, operand), inner.get(gradient)
            around = value is self.current.get(gradient) or value is above.get(gradient)
            if around or operand in fresh:
                value = None  # the branch does not compute it
            zero = yield from self._zeros(op, f"{name}@ZERO", like)
            # Where the branch is not taken, a variable that it overwrites has the gradient from behind it.
            other = above.get(gradient, zero) if operand in overwritten.values else zero
            result = self._result(op, name)
            self._share_levels(like, result)
            yield _where(op, taken, value or zero, other, result, finished(op, {name: result}))
        left = {n: inner[grad_name(n)] for n in overwritten.values if grad_name(n) in inner}
        left = {n: gradient for n, gradient in left.items() if n not in fresh}
        yield from self._below(op, taken, overwritten, left)

    def _below(
        self, op: Operator, taken: Value, overwritten: Scope, left: dict[str, Value]
    ) -> Iterator[Node]:
        """Give a value that the branch overwrites, where that is taken, the gradient ``left`` of it, or 0.

        Some is left where a branch or a loop in the branch may keep the value.
        """
        for result, name in zip(op.inputs["Out"], op.inputs.get("Out@GRAD", ()), strict=False):
            value = self.current.get(name)
            done = name in op.outputs.get("Input@GRAD", ())
            if result not in overwritten.values or value is None or done:
                continue
            if (gradient := left.get(result)) is None:
                gradient = yield from self._zeros(op, f"{name}@TAKEN", value)
            yield _where(op, taken, gradient, value, self._write(op.block, name))

    def _choice(self, op: Operator) -> Generator[Node, None, Value]:
        """Return a boolean of a mask of one number, 0 or 1; yield the nodes that make it, once."""
        number = self._operand(op, "Mask")
        if number not in self.choices:
            choice = self._new(f"{number.name}@BOOL", Spec(number.spec.shape, VarType.BOOL))
            attrs = {"in_dtype": int(number.spec.dtype), "out_dtype": int(VarType.BOOL)}
            yield node_of(op, "cast", {"X": (number,)}, {"Out": (choice,)}, attrs)
            self.choices[number] = yield from self._flag(op, choice)
        return self.choices[number]

    def _selection(self, op: Operator) -> Iterator[Node]:
        """Choose between the results of two branches."""
        names = op.inputs.get("X", [])
        if len(names) != 2:
            raise Unsupported(f"{op.type}: takes two variables and one mask. {op.where}")
        choice = yield from self._choice(op)
        no, yes = (self._value_of(op, name) for name in names)
        (name,) = op.outputs["Out"]
        spec = _of_either(op, name, yes.spec, no.spec)
        alike = self._are_alike(yes.spec, no.spec)
        if alike and self.skipped.isdisjoint((no, yes)):
            yield self._chosen(op, choice, yes, no, name)
            return
        result = self.current[name] = replace(self._result(op, name), spec=spec)
        if not (alike and self.skipped.issuperset((no, yes))):
            self.sized.add(name)
            self.unlike.add(result)
        self._forget_levels(name)
        self._give_levels(result, max(map(self._levels, (no, yes))), TEMP)
        yield self._call(op, "select_input", [choice, no, yes], [result])

    def _are_alike(self, yes: Spec, no: Spec) -> bool:
        """Tell whether results of branches have one shape: batches do, and sizes that no branch decides."""
        return yes.shape == no.shape and not (self.sized and -1 in yes.shape[1:])

    def _chosen(self, op: Operator, choice: Value, yes: Value, no: Value, name: str) -> Node:
        """Return the node that writes one of two values, with the sequences that both have."""
        result = self._result(op, name)
        if self.sequences.levels.get(yes) == self.sequences.levels.get(no):
            self._share_levels(yes, result)
        return _where(op, choice, yes, no, result)

    def _selection_gradient(self, op: Operator) -> Iterator[Node]:
        """Give the gradient to the result that was chosen, and 0 to the other."""
        above = self._operand(op, "X")
        choice = yield from self._choice(op)
        names = op.outputs["Out"]
        if differentiated_name(op.inputs["X"][0]) in self.sized:
            yield self._sized_gradient(op, choice, above)
            return
        zero = yield from self._zeros(op, f"{above.name}@ZERO", above)
        for name, sides in zip(names, ((zero, above), (above, zero)), strict=True):
            if name != EMPTY_VAR:
                yield _where(op, choice, *sides, self._write(op.block, name))

    def _sized_gradient(self, op: Operator, choice: Value, above: Value) -> Node:
        """Return the node of the same, where the zeros have the size of a result that was not chosen."""
        names = dict(enumerate(op.outputs["Out"]))
        sides = [k for k, name in names.items() if name != EMPTY_VAR]
        likes = [self._value_of(op, differentiated_name(names[k])) for k in sides]
        slopes: list[Value] = []
        for k, like in zip(sides, likes, strict=True):
            self.current[names[k]] = self._with_spec(self._result(op, names[k]), like.spec)
            slopes.append(self.current[names[k]])
        operands, options = [choice, above, *likes], {"sides": sides}
        return self._call(op, "select_output", operands, slopes, options, bare=True)


def _where(
    op: Operator,
    choice: Value,
    yes: Value,
    no: Value,
    result: Value | None,
    grads: tuple[tuple[str, Value], ...] = (),
) -> Node:
    """Return the node that chooses one of two values."""
    inputs = {"Condition": (choice,), "X": (yes,), "Y": (no,)}
    return node_of(op, "where", inputs, {"Out": (result,)}, None, grads)


def _check_types(op: Operator, name: str, taken: Spec, other: Spec) -> None:
    """Refuse results of two branches that differ in shape or type, so that no value can be either.

    Raises:
        ShapeError: their sizes or the types of their elements differ.
    """
    if taken.dtype != other.dtype or not _may_be_alike(taken, other):
        raise ShapeError(
            f"{op.type}: {name!r} is {taken} where the branch is taken and {other} where it is not: what reads "
            f"it is built for one shape and type. {op.where}"
        )


def _of_either(op: Operator, name: str, taken: Spec, other: Spec) -> Spec:
    """Return the spec of a value that is the result of either branch: sizes in which they differ are unknown.

    Raises:
        ShapeError: they have other numbers of dimensions, or elements of other types.
    """
    if taken.dtype != other.dtype or len(taken.shape) != len(other.shape):
        raise ShapeError(
            f"{op.type}: {name!r} is {taken} where the branch is taken and {other} where it is not: what reads "
            f"it is built for one type, and for one number of dimensions. {op.where}"
        )
    return either(other, taken)


def _may_be_alike(first: Spec, second: Spec) -> bool:
    """Tell whether two specs differ in no size that both know."""
    sizes = zip_longest(first.shape, second.shape)
    return all(n == m or -1 in (n, m) for n, m in sizes)


def _is_light(block: Block) -> bool:
    """Tell whether to compute a branch costs less than to ask whether it is taken, and can do no harm.

    It is made of ops that compute element by element, move elements, add them up, or print.
    """
    for op in block.ops:
        declaration = op.declaration
        inner = op.attrs.get("sub_block")
        if isinstance(inner, Block):
            light = op.type != "while" and _is_light(inner)
        else:
            by_element = declaration.scalar is not None or declaration.update is not None
            light = by_element or op.type in _LIGHT or bool(declaration.views)
        if not light:
            return False
    return True


def _check_effects(op: Operator, block: Block) -> None:
    """Refuse ops with effects beside their results, unless they run only where the branch is taken.

    What prints in a branch for some rows does nothing where there are none.

    Raises:
        Unsupported: the branch, or a block in it, holds a collective, which other places may not come to; or
            it is computed for some rows, of which there may be none, and calls Python.
    """
    refused = MEETINGS if op.attrs.get("is_scalar_condition") else {*MEETINGS, PY_FUNC}
    for body_op in block.ops:
        if body_op.type in refused:
            raise Unsupported(
                f"{op.type}: {body_op.type!r} cannot stand in a branch, which may not be taken, or not on all "
                f"places. {body_op.where or op.where}"
            )
        if "sub_block" in body_op.attrs:
            _check_effects(op, block_of(body_op))
