"""Branches: layers that compute one of several blocks, by conditions that are known when the program runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from math import prod
from typing import Any

from ...strategies.errors import InvalidType, InvalidValue, UnknownField, require_type
from ...strategies.types import VarType
from ..program.block import Block
from ..program.program import Program, default_main_program
from ..program.role import EMPTY_VAR
from ..program.variable import Variable
from ..program.where import user_line
from . import binary
from .arguments import check_variable
from .helper import LayerHelper
from .nest import assert_same_structure, map_structure
from .shape import assign, cast, fill_constant

Branch = Callable[[], Any]
_INDICES = (VarType.UINT8, VarType.INT32, VarType.INT64)


@contextmanager
def sub_block(program: Program, complete: Callable[[Block], None]) -> Iterator[Block]:
    """Add ops built inside to a new block; ``complete`` is called with it at the end, unless they fail."""
    block = program._create_block()
    try:
        yield block
        complete(block)
    finally:
        program._rollback()


def captured(block: Block) -> tuple[list[str], list[str]]:
    """Return the names that a block reads before it writes them, and the names that it writes, in order."""
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    for op in block.ops:
        reads |= dict.fromkeys(n for n in op.input_arg_names if n not in writes and n != EMPTY_VAR)
        writes |= dict.fromkeys(n for n in op.output_arg_names if n != EMPTY_VAR)
    return list(reads), list(writes)


def around(block: Block, names: Sequence[str]) -> list[Variable]:
    """Return those of the named variables that the block around ``block`` sees."""
    parent = block.program.block(block.parent_idx)
    variables = (parent.find_var_recursive(name) for name in names)
    return [variable for variable in variables if variable is not None]


class ConditionalBlock:
    """A block that is computed where ``inputs``, one boolean of one element, is true.

    Without ``is_scalar_condition`` it is where nothing that it reads is empty (see :class:`~.if_else.IfElse`).
    """

    def __init__(
        self, inputs: Sequence[Variable], is_scalar_condition: bool = False, name: str | None = None
    ) -> None:
        for each in inputs:
            check_variable(each, "inputs", "ConditionalBlock")
        self.inputs = inputs
        self.is_scalar_condition = is_scalar_condition
        self.helper = LayerHelper("conditional_block", name)

    def block(self) -> AbstractContextManager[Block]:
        """Return a context: ops built inside belong to the block."""
        return sub_block(self.helper.main_program, self._complete)

    def _complete(self, block: Block) -> None:
        parent = block.program.block(block.parent_idx)
        reads, writes = captured(block)
        outputs = {
            "Out": around(block, writes),
            "Scope": parent.create_var(type=VarType.STEP_SCOPES),
        }
        parent.append_op(
            "conditional_block",
            {"Cond": self.inputs, "Input": around(block, reads)},
            outputs,
            {"sub_block": block, "is_scalar_condition": self.is_scalar_condition},
        )


def check_condition(value: Any, argument: str, layer: str) -> None:
    """Raise InvalidType unless ``value`` is a boolean Variable of one element, as far as sizes are known."""
    check_variable(value, argument, layer)
    if value.dtype != VarType.BOOL:
        kind = value.dtype and value.dtype.name
        raise InvalidType(f"{layer}: {argument} must be a bool Variable, {value.name!r} is {kind}.")
    _check_one_element(value, argument, layer)


def _check_one_element(value: Variable, argument: str, layer: str) -> None:
    """Raise InvalidType if sizes are known, and there are not just one element."""
    shape = value.shape or ()
    if -1 not in shape and prod(shape) != 1:
        raise InvalidType(
            f"{layer}: {argument} expected one element, and {value.name!r} has the shape {list(shape)}. "
            f"Reduce it (reduce_all, reduce_any), or choose element by element (where)."
        )


def _check_callable(function: Any, argument: str, layer: str) -> None:
    if not callable(function):
        raise InvalidType(
            f"{layer}: {argument} must be callable, got {function!r} ({type(function).__name__})."
        )


def _to_parent(value: Any) -> Variable | None:
    """Copy a branch's result to a variable of the block around it."""
    if value is None:
        return None
    if not isinstance(value, Variable):
        raise UnknownField(
            f"cond: a branch returns Variables, got {value!r} ({type(value).__name__}). "
            f"fill_constant makes a Variable of a number."
        )
    program = default_main_program()
    parent = program.block(program.current_block().parent_idx)
    result = parent.create_var(dtype=value.dtype, shape=value.shape, type=value.type)
    return assign(value, result)


def _branch(condition: Variable, function: Branch | None) -> Any:
    """Build a branch, and return the variables around it that take its results."""
    if function is None:
        return None
    with ConditionalBlock([condition], is_scalar_condition=True).block():
        results = function()
        return None if results is None else map_structure(_to_parent, results)


def _check_alike(no: Variable, yes: Variable) -> None:
    """Refuse results of branches that differ in their type, or in how many dimensions they have."""
    same = no.type == yes.type and len(no.shape or ()) == len(yes.shape or ())
    if no.dtype != yes.dtype or not same:
        raise InvalidValue(
            f"cond: the branches' results must have one shape and type (but for sizes), for which what reads "
            f"them is built: true_fn returns {yes}, false_fn {no}. Give both as many dimensions (reshape, "
            f"unsqueeze) and one dtype (cast). Built at {user_line()}."
        )


def select_input(inputs: Sequence[Variable], mask: Variable) -> Variable:
    """The one of two variables that ``mask``, an int32 of one element, names by 0 or 1.

    A size in which they differ is unknown (-1) while the program is built.
    """
    first, helper = inputs[0], LayerHelper("select_input")
    _check_alike(*inputs)
    out = helper.block.create_var(dtype=first.dtype, shape=first.shape, type=first.type)
    helper.layers("select_input", "", x=inputs, mask=mask, out=out)
    return out


def cond(
    pred: Variable,
    true_fn: Branch | None = None,
    false_fn: Branch | None = None,
    name: str | None = None,
    return_names: Sequence[str] | None = None,
) -> Any:
    """Return the results of ``true_fn`` if ``pred`` (bool, one element) is true, else those of ``false_fn``.

    Both return Variables in structures alike, or nothing. A side that computes element by element, moves
    elements or adds them up is computed in each step, and its results are taken or not; any other, with a
    product, a lookup, a loop or a Python function in it, runs where it is taken: the step is cut there. To the
    operands of the other side flows a gradient of 0. Results may differ in their sizes, not in their type or
    number of dimensions; which they have is known when a step has computed them.

    Raises:
        InvalidType: ``pred`` is no bool Variable, or a branch is not callable.
        InvalidValue: the branches return other structures.
        UnknownField: a branch returns what is no Variable.
    """
    check_condition(pred, "pred", "cond")
    require_type(name, str | None, "cond: name must be a str")
    for function, argument in ((true_fn, "true_fn"), (false_fn, "false_fn")):
        if function is not None:
            _check_callable(function, argument, "cond")
    LayerHelper("cond", name)
    yes = _branch(pred, true_fn)
    no = None if false_fn is None else _branch(binary.logical_not(pred), false_fn)
    if yes is None and no is None:
        return None
    problem = "Incompatible return values of true_fn and false_fn in cond: "
    if yes is None or no is None:
        silent, other = ("true_fn", "false_fn") if yes is None else ("false_fn", "true_fn")
        raise InvalidValue(
            f"{problem}{silent} returns None while {other} returns non-None. Return what stays as it is, too. "
            f"Built at {user_line()}."
        )
    try:
        assert_same_structure(yes, no, check_types=False)
    except InvalidValue as error:
        raise InvalidValue(f"{problem}{error}") from None
    mask = cast(pred, "int32")
    return map_structure(lambda false, true: select_input([false, true], mask), no, yes)


def case(
    pred_fn_pairs: Sequence[tuple[Variable, Branch]],
    default: Branch | None = None,
    name: str | None = None,
) -> Any:
    """Return the results of the function of the first true condition, else of ``default`` (the last function).

    Raises:
        InvalidType: no list of (bool Variable, callable).
    """
    LayerHelper("case", name)
    if not isinstance(pred_fn_pairs, (list, tuple)) or not pred_fn_pairs:
        raise InvalidType(f"case: pred_fn_pairs must be a list of pairs, got {pred_fn_pairs!r}.")
    pairs = list(pred_fn_pairs)
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InvalidType(
                f"case: an element of pred_fn_pairs must be a 2-tuple (pred, fn), got {pair!r}."
            )
        check_condition(pair[0], "a pred of pred_fn_pairs", "case")
        _check_callable(pair[1], f"the fn for {pair[0].name} of pred_fn_pairs", "case")
    if default is None:
        default = pairs.pop()[1]
    _check_callable(default, "default", "case")
    return _in_turn(pairs[::-1], default)


def _in_turn(pairs: Sequence[tuple[Variable, Branch]], default: Branch) -> Any:
    """Test the last condition first, and in its false branch those before it."""
    function = default
    for condition, branch in pairs:
        function = partial(cond, condition, branch, function)
    return function()


def switch_case(
    branch_index: Variable, branch_fns: Any, default: Branch | None = None, name: str | None = None
) -> Any:
    """Return the results of the function with key ``branch_index`` (uint8, int32 or int64, one element).

    For other keys ``default`` is called, or without it the function of the largest key.

    Args:
        branch_fns: {key: function}, a list of (key, function), or one of functions with the keys 0, 1, ...

    Raises:
        InvalidType: an argument of another type.
        InvalidValue: a key appears twice.
    """
    LayerHelper("switch_case", name)
    if branch_index.dtype not in _INDICES:
        raise InvalidType(
            f"switch_case: branch_index must be uint8, int32 or int64, {branch_index.name!r} is "
            f"{branch_index.dtype and branch_index.dtype.name}."
        )
    _check_one_element(branch_index, "branch_index", "switch_case")
    if branch_index.dtype != VarType.INT64:
        branch_index = cast(branch_index, "int64")
    functions = _by_key(branch_fns)
    if default is None:
        _, default = functions.pop(functions.index(max(functions, key=lambda pair: pair[0])))
        functions.sort(key=lambda pair: pair[0])
    _check_callable(default, "default", "switch_case")
    pairs = []
    for key, function in functions:
        same = binary.equal(branch_index, fill_constant([1], "int64", key))
        pairs.append((same, function))
    return _in_turn(pairs, default)


def _by_key(branch_fns: Any) -> list[tuple[int, Branch]]:
    if not isinstance(branch_fns, (list, tuple, dict)) or not branch_fns:
        raise InvalidType(
            f"switch_case: branch_fns must be a list, tuple or dict of functions, got {branch_fns!r}."
        )
    pairs = list(branch_fns.items() if isinstance(branch_fns, dict) else branch_fns)
    if all(callable(function) for function in pairs):
        pairs = list(enumerate(pairs))
    keys = set()
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InvalidType(
                f"switch_case: an element of branch_fns must be a 2-tuple (key, fn), got {pair!r}."
            )
        key, function = pair
        if not isinstance(key, int):
            raise InvalidType(f"switch_case: a key of branch_fns must be an int, got {key!r}.")
        if key in keys:
            raise InvalidValue(
                f"switch_case: the key in branch_fns must be unique, {key} appears more than once."
            )
        _check_callable(function, f"the function for key {key}", "switch_case")
        keys.add(key)
    return pairs


class Switch:
    """Blocks in turn: the first whose condition is true is computed, else the default::

    with Switch() as switch:
        with switch.case(condition):
            assign(one, rate)
        with switch.default():
            assign(half, rate)
    """

    def __init__(self, name: str | None = None) -> None:
        self.helper = LayerHelper("switch", name)
        self._entered = False
        self._none_so_far: Variable | None = None

    def case(self, condition: Variable) -> AbstractContextManager[Block]:
        """Return the context of a block for a condition, a bool of one element.

        Raises:
            InvalidType: it is no bool Variable.
            InvalidValue: called outside ``with switch:``.
        """
        if not self._entered:
            raise InvalidValue("Switch: case should be called inside with.")
        check_condition(condition, "condition", "Switch.case")
        before, guard = self._none_so_far, condition
        if before is None:
            self._none_so_far = binary.logical_not(condition)
        else:
            self._none_so_far = binary.logical_and(before, binary.logical_not(condition))
            guard = binary.logical_and(before, condition)
        return ConditionalBlock([guard], is_scalar_condition=True).block()

    def default(self) -> AbstractContextManager[Block]:
        """Return the context of the block for when no condition is true.

        Raises:
            InvalidValue: there is no case before it.
        """
        if self._none_so_far is None:
            raise InvalidValue("Switch: there should be at least one condition before default.")
        return ConditionalBlock([self._none_so_far], is_scalar_condition=True).block()

    def __enter__(self) -> Switch:
        self._entered = True
        return self

    def __exit__(self, *exception: object) -> None:
        self._entered = False
