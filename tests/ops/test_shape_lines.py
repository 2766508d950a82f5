"""Shape rules of one line (``graph/ops/shapes.py``), and limits of attributes (``operands.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest

from rowlock.graph.ops.operands import Input, Inputs, Operands, Output, Outputs, Positive, limit_of
from rowlock.graph.ops.registry import Inference, Op, Spec
from rowlock.graph.ops.shapes import Sized, by_use, counted, names_dimensions, numbers, one_element
from rowlock.strategies.errors import ShapeError
from rowlock.strategies.types import VarType


class Example(Operands):
    x: Input
    y: Input | None
    out: Output
    count: Positive = 2
    dtype: int = int(VarType.INT32)
    mode: Literal["a", "b"] = "a"


class Several(Operands):
    x: Inputs
    out: Outputs
    axis: int = 0
    sizes: Sequence[int] = [2, 3]


def infer(line: str, *rules: str, **read: Spec) -> Spec:
    """Return the spec of Out by a line, of operands by slot."""
    op = Op("example", Example, Sized(line, *rules))
    inputs = {slot: [spec] for slot, spec in read.items()}
    (result,) = op.infer(Inference(op, inputs, op.attrs))["Out"]
    return result


def infer_several(rule: Sized, *x: Spec, **attrs: object) -> list[Spec]:
    """Return the specs of Out, of the variables in X."""
    op = Op("example", Several, rule)
    return op.infer(Inference(op, {"X": [*x]}, {**op.attrs, **attrs}))["Out"]


def floats(*shape: int) -> Spec:
    return Spec(shape, VarType.FP32)


@pytest.mark.parametrize(
    ("line", "x", "y", "expected"),
    [
        ("X [N D] -> Out as X", (3, 4), None, floats(3, 4)),
        ("X [N D], Y [D] -> Out [D N]", (3, 4), (4,), floats(4, 3)),
        ("X [N D], Y [D] -> Out [N]", (-1, 4), (4,), floats(-1)),
        ("X [N D], Y [N 1?] -> Out [N]", (-1, 4), (3,), floats(3)),
        ("X [N D], Y [N 1?] -> Out [N]", (-1, 4), (3, 1), floats(3)),
        ("X [... D], Y [...] -> Out [... 1]", (2, 3, 4), (2, 3), floats(2, 3, 1)),
        ("X [N ...] -> Out [1 ... N]", (5, 2, 3), None, floats(1, 2, 3, 5)),
        ("X [N D], Y [count*D+1 K] -> Out [K]", (3, 4), (9, 7), floats(7)),
        ("X [N D] -> Out [count*N N+D]", (3, -1), None, floats(6, -1)),
        ("X [N 2*D], Y [D] -> Out [D]", (3, 8), (4,), floats(4)),
        ("X [N 2*D], Y [2*D] -> Out [2*D]", (3, -1), (4,), floats(4)),
        ("X floats [N] -> Out int64 [N]", (3,), None, Spec((3,), VarType.INT64)),
        ("X [N] -> Out dtype [count]", (3,), None, Spec((2,), VarType.INT32)),
    ],
)
def test_results_have_the_sizes_of_the_line(
    line: str, x: tuple[int, ...], y: tuple[int, ...] | None, expected: Spec
) -> None:
    operands = {"X": floats(*x), **({} if y is None else {"Y": floats(*y)})}
    assert infer(line, **operands) == expected


@pytest.mark.parametrize(
    ("line", "x", "y", "problem"),
    [
        ("X [N D], Y [D] -> Out [N]", floats(3, 4), floats(5), r"Y must be \[D\], where D = 4"),
        ("X [N] -> Out [N]", floats(3, 4), None, r"X must be a vector \[N\]"),
        ("X [N D], Y [4*D] -> Out [N]", floats(3, 4), floats(8), r"Y must be \[4\*D\]"),
        ("X [N 1] -> Out [N]", floats(3, 4), None, r"X must have one number in a row: \[N, 1\]"),
        ("X [N 3] -> Out [N]", floats(3, 4), None, r"X must be \[N, 3\], where N = 3"),
        (
            "X [N C H] -> Out [N]",
            floats(3, 4),
            None,
            r"X must be \[N, C, H\], .*, C = 4: 3 dimensions",
        ),
        ("X [...], Y [...] -> Out as X", floats(3, 4), floats(3), r"Y must be \[3, 4\]"),
        (
            "X [N 2*D], Y [D] -> Out [D]",
            floats(3, 7),
            floats(4),
            r"X must be \[N, 2\*D\], where N = 3, 2\*D = 8",
        ),
        ("X integers [N D] -> Out [N]", floats(3, 4), None, "X must hold integers"),
        ("X bool [N D] -> Out [N]", floats(3, 4), None, "X must hold bool"),
        (
            *("X [N D], Y as X [N] -> Out [N]", floats(3, 4), Spec((3,), VarType.FP64)),
            "X, Y must have one dtype",
        ),
    ],
)
def test_operands_that_do_not_fit_are_told_what_the_line_says(
    line: str, x: Spec, y: Spec | None, problem: str
) -> None:
    operands = {"X": x, **({} if y is None else {"Y": y})}
    with pytest.raises(ShapeError, match=f"^example: {problem}"):
        infer(line, **operands)


@pytest.mark.parametrize(
    ("line", "rules", "x", "y", "shape"),
    [
        ("X -> Out [*rest]", ["rest = X[1:]"], (2, 3, 4), None, (3, 4)),
        ("X -> Out [*rest]", ["rest = X[1:]"], (-1, 3, -1), None, (3, -1)),
        ("X [N *rest] -> Out [*rest N]", [], (2, 3, 4), None, (3, 4, 2)),
        ("X -> Out [whole]", ["whole = prod(X)"], (2, 3), None, (6,)),
        ("X -> Out [whole]", ["whole = prod(X)"], (2, -1), None, (-1,)),
        ("X -> Out [a b]", ["a, b = X[1], X[0] + count"], (2, -1), None, (-1, 4)),
        ("X [N D] -> Out [N D/count]", [], (3, 4), None, (3, 2)),
        ("X [N D] -> Out [N D/count]", [], (3, -1), None, (3, -1)),
        ("X [N D], Y [columns] -> Out [N]", ["columns = X[1]"], (3, 4), (4,), (3,)),
        ("X, Y -> Out as X [size]", ["size = 1 if Y is None else 2"], (3,), None, (1,)),
        ("X, Y -> Out as X [size]", ["size = 1 if Y is None else 2"], (3,), (4,), (2,)),
    ],
)
def test_words_stand_for_what_statements_say(
    line: str,
    rules: list[str],
    x: tuple[int, ...],
    y: tuple[int, ...] | None,
    shape: tuple[int, ...],
) -> None:
    operands = {"X": floats(*x), **({} if y is None else {"Y": floats(*y)})}
    assert infer(line, *rules, **operands) == floats(*shape)


@pytest.mark.parametrize(
    ("rule", "x", "problem"),
    [
        ("len(X) == 2", (3,), r"len\(X\) == 2 must hold: len\(X\) = 1"),
        ("N % count == 0; rows do not pair", (3,), "rows do not pair: N = 3, count = 2"),
        ("every(n < 4 for n in X)", (9, -1), r".* must hold: X = \(9, -1\)"),
        ("known(N)", (-1,), r"known\(N\) must hold: known\(N\) = False"),
        ("at = front(axis, X)", (3,), "axis 5 is outside the 1 dimensions"),
        ("half = N / count", (3,), "N = 3 does not divide by count = 2"),
        ("mode in ('b', 'c')", (3,), r"mode in \('b', 'c'\) must hold: mode = 'a'"),
        ("Y is not None; Y is missing", (3,), "Y is missing: Y = None"),
    ],
)
def test_a_condition_that_does_not_hold_tells_the_values(
    rule: str, x: tuple[int, ...], problem: str
) -> None:
    op = Op("example", Example, Sized("X [N ...] -> Out as X", rule))
    with pytest.raises(ShapeError, match=f"^example: {problem} \\(got X=FP32"):
        op.infer(Inference(op, {"X": [floats(*x)]}, {**op.attrs, "axis": 5}))


@pytest.mark.parametrize(
    "rule",
    ["N == 7", "prod(X) > 99", "N % count", "len(Y) == 2", "every(n < 4 for n in X)", "N / 2 > 8"],
)
def test_a_condition_is_passed_over_where_sizes_or_operands_are_not_known(rule: str) -> None:
    assert infer("X [N ...] -> Out as X", rule, X=floats(-1, 3)) == floats(-1, 3)


def test_values_that_cannot_be_told_are_left_out() -> None:
    two = Sized("X -> Out", *numbers(2, 1, "sizes"))
    problem = r"sizes must be 2 numbers from 1 on: len\(sizes\) = 0, sizes = \[\]"
    with pytest.raises(ShapeError, match=problem):
        infer_several(two, floats(3), sizes=[])
    for sizes in ([0, 1], [1], [1, 2, 3]):
        with pytest.raises(ShapeError, match=r"sizes = \["):
            infer_several(two, floats(3), sizes=sizes)
    assert infer_several(two, floats(3), sizes=[1, 2]) == [floats(3)]


def test_all_variables_of_a_slot_fit_and_tell_sizes() -> None:
    joined = Sized("X as X [*shape] -> Out [number *shape]", "number = len(X)")
    assert infer_several(joined, floats(-1, 3), floats(2, -1)) == [floats(2, 2, 3)]
    for other, problem in (
        (floats(3, 3), r"X must be \[2, 3\]"),
        (Spec((2, 3), VarType.FP64), "X must have one dtype"),
    ):
        with pytest.raises(ShapeError, match=problem):
            infer_several(joined, floats(2, 3), other)


def test_results_are_as_many_as_a_word_says() -> None:
    cut = Sized("X -> Out*layers [*rest]", "layers, rest = X[0][0], X[0][1:]")
    assert infer_several(cut, floats(3, 4)) == [floats(4)] * 3
    assert infer_several(cut, floats(0, 4)) == []
    with pytest.raises(ShapeError, match="the number of results Out must be known"):
        infer_several(cut, floats(-1, 4))
    assert infer_several(Sized("X -> Out"), floats(3), floats(4)) == [floats(3), floats(4)]


def test_a_line_is_extended_and_one_of_two_is_chosen() -> None:
    first = Sized("X [N] -> Out as X", "N > 1")
    more = first.extended("Y [N] ->", "N < 5; N is large")
    assert (more.line, [s.problem for s in more.statements]) == (
        "X [N] , Y [N] -> Out as X",
        ["N is large", "N > 1 must hold"],
    )
    op = Op("example", Example, by_use("Y", Sized("X -> Out [1]"), Sized("X -> Out [2]")))
    for y, size in (([floats(3)], 1), ([], 2)):
        read = {"X": [floats(3)], "Y": y}
        assert op.infer(Inference(op, read, op.attrs)) == {"Out": [floats(size)]}


def test_what_a_line_says_is_remembered_by_what_it_depends_on() -> None:
    rule = Sized("X -> Out [size]", "size = sizes[axis] * X[0][0]")
    for sizes, axis, rows in (([2, 3], 0, 4), ([2, 3], 1, 4), ([5, 3], 0, 4), ([2, 3], 0, 6)):
        for _ in range(2):
            result = infer_several(rule, floats(rows), sizes=sizes, axis=axis)
            assert result == [floats(sizes[axis] * rows)]
    long = Sized("X -> Out [size]", "size = len(sizes)")
    assert infer_several(long, floats(3), sizes=[1] * 1000) == [floats(1000)]
    assert long._known == {}  # no list of a parameter's values is kept
    unhashable = Sized("X -> Out [size]", "size = len(sizes[0])")
    assert infer_several(unhashable, floats(3), sizes=[[1, 2], [3]]) == [floats(2)]


@pytest.mark.parametrize("line", ["X [N D], Y [D] -> Out [N]", "X, Y [D] -> Out as Y"])
def test_an_operand_that_must_be_there_is_named(line: str) -> None:
    with pytest.raises(ShapeError, match="the input 'X' is missing"):
        infer(line, Y=floats(4))


def test_a_result_that_is_as_an_operand_is_left_out_with_it() -> None:
    op = Op("example", Example, Sized("X, Y -> Out as Y"))
    assert op.infer(Inference(op, {"X": [floats(3)]}, op.attrs)) == {}


def test_an_attribute_names_dimensions_of_an_operand() -> None:
    op = Op("example", Example, Sized("X -> Out", names_dimensions("axes")))
    for axes in (0, -2, [1, -1]):
        op.infer(Inference(op, {"X": [floats(3, 4)]}, {**op.attrs, "axes": axes}))
    for axes in (2, [0, -3]):
        with pytest.raises(ShapeError, match="is outside the 2 dimensions"):
            op.infer(Inference(op, {"X": [floats(3, 4)]}, {**op.attrs, "axes": axes}))


def test_an_operand_may_have_to_be_one_element() -> None:
    op = Op("example", Example, Sized("X, Y -> Out", one_element("X", "Y")))
    for shape in ((), (1,), (1, 1), (-1,)):
        op.infer(Inference(op, {"X": [floats(*shape)]}, op.attrs))
    with pytest.raises(ShapeError, match="Y must have one element"):
        op.infer(Inference(op, {"X": [floats(1)], "Y": [floats(2)]}, op.attrs))


def test_what_sizes_are_counted_from_is_read_before_a_step() -> None:
    count = counted(Example, lambda a: {"K": a.x.size}, "x")
    op = Op("example", Example, Sized("X [N], Y [N] -> Out [K]", count))
    assert op.values_read(op.attrs, ("X", "Y")) == ["X"]
    read = {"X": [floats(3)], "Y": [floats(3)]}
    assert op.infer(Inference(op, read, op.attrs)) == {"Out": [floats(-1)]}
    known = Inference(op, read, op.attrs, values={"X": [np.zeros(3)]}.__getitem__)
    assert op.infer(known) == {"Out": [floats(3)]}


@pytest.mark.parametrize(
    ("kind", "inside", "outside", "text"),
    [
        ("Positive", 1, 0, "be above 0"),
        ("NotNegative", 0, -1, "not be negative"),
        ("Literal['a', 'b', 'c']", "c", "d", "be 'a', 'b' or 'c'"),
        ("Literal['a']", "a", "", "be 'a'"),
    ],
)
def test_limits_are_read_from_annotations(
    kind: str, inside: object, outside: object, text: str
) -> None:
    limit = limit_of(kind)
    assert limit is not None and limit.text == text
    assert limit.holds(inside) and not limit.holds(outside)
    assert limit_of("int") is None
