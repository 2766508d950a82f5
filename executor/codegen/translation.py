"""Functions in a small part of Python -> the text of an LLVM module.

It has numbers, pointers, variables, loops over ranges, while, if, and calls of the functions of the source and
of those in ``llvm_values.py``. Types follow from operands: at any place in the text a variable that is read has
one. It lives in memory, which LLVM's first pass turns into registers.

In the function that is exported, ``load(x, i)`` and ``store(x, i, v)`` are ``x[i]`` and ``x[i] = v`` where
pointers of different names lead to different places in memory: what is stored to one is not read from another,
so that loops become vectors. ``y = x`` and ``overlap(y, x)`` say that two may lead to one place.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, reduce
from typing import NamedTuple

from .llvm_values import CALLS, CONSTANTS, I64, TRUTH, Instructions, Type, Value, constant, joint

_Condition = Callable[[], Value]


class Module:
    """A module that exports one function, which takes a pointer to int64."""

    def __init__(self, source: str) -> None:
        tree = ast.parse(source)
        self.functions = {f.name: f for f in tree.body if isinstance(f, ast.FunctionDef)}
        self.metadata: dict[str, str] = {}
        self.declared: set[str] = set()
        self.texts: list[str] = []
        self._specialised: dict[tuple[str, tuple[Type, ...]], tuple[Type, str]] = {}

    def export(self, entry: str, symbol: str) -> str:
        """Return the text of the module with ``entry`` under another name."""
        words = Type("ptr", "pointer", 64, "int64")
        places = _places(self.functions[entry])
        self._define(entry, (words,), f"define void @{symbol}", "", places)
        notes = [f"{name} = {text}" for text, name in self.metadata.items()]
        return "\n".join([*self.texts, *sorted(self.declared), *notes, ""])

    def specialised(self, name: str, kinds: tuple[Type, ...]) -> tuple[Type, str]:
        """Return the type of a function's result for operands of some types, and its symbol."""
        key = name, kinds
        if key not in self._specialised:
            symbol = f"@{name}.{len(self.texts)}"
            result = self._define(
                name, kinds, f"define internal {{}} {symbol}", " alwaysinline", {}
            )
            assert result is not None, f"{name} returns nothing"
            self._specialised[key] = result, symbol
        return self._specialised[key]

    def _define(
        self, name: str, kinds: tuple[Type, ...], head: str, marks: str, places: Mapping[str, int]
    ) -> Type | None:
        body = _Function(self, self.functions[name], kinds, places)
        result = "void" if body.result is None else body.result.name
        operands = ", ".join(f"{kind.name} %a{k}" for k, kind in enumerate(kinds))
        lines = "\n".join([*body.code.slots, *body.code.lines])
        self.texts.append(f"{head.format(result)}({operands}){marks} {{\n{lines}\n}}")
        return body.result


class _Turn(NamedTuple):
    """What a loop's text has done to variables: those not written yet, and those of them that it read."""

    unchanged: set[str]
    carried: set[str]


class _Function:
    """Instructions of one function for operands of some types; ``places`` in memory, by names of pointers."""

    def __init__(
        self,
        module: Module,
        tree: ast.FunctionDef,
        kinds: tuple[Type, ...],
        places: Mapping[str, int],
    ) -> None:
        self.code = Instructions(module.metadata, module.declared)
        self.result: Type | None = None
        self._module, self._places = module, places
        # Of variables; None: one of several, which is not read
        self._types: dict[str, Type | None] = {}
        self._memory: dict[tuple[str, Type], str] = {}
        # Where continue and break go, from the outer loop to the inner
        self._exits: list[tuple[str, str]] = []
        self._turns: list[_Turn] = []
        for k, (parameter, kind) in enumerate(zip(tree.args.args, kinds, strict=True)):
            self._assign(parameter.arg, Value(kind, f"%a{k}"))
        self._run(tree.body)
        self.code.lines.append("ret void" if self.result is None else "unreachable")

    def _run(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets=[target], value=value):
                self._set(target, value)
            case ast.AugAssign(target, operation, value):
                self._write(target, self._binary(target, operation, value))
            case ast.For(ast.Name(name), ast.Call(ast.Name("range"), limits), body, []):
                self._for(name, [self.value(limit) for limit in limits], limits, body)
            case ast.While(condition, body, []):
                with self._loop(partial(self.value, condition)):
                    self._run(body)
            case ast.If(condition, body, otherwise):
                self._choose(self.value(condition), body, otherwise)
            case ast.Expr(ast.Call() as call):
                self._call(call)
            case ast.Pass() | ast.Expr(ast.Constant()):
                pass
            case ast.Break():
                self._leave(self._exits[-1][1])
            case ast.Continue():
                self._leave(self._exits[-1][0])
            case ast.Return(value):
                self._return(value)
            case _:
                raise _unknown(statement)

    def _return(self, result: ast.expr | None) -> None:
        if result is None:
            self.code.lines.append("ret void")
        else:
            value = self.value(result)
            self.result = self.result or value.type
            self.code.lines.append(f"ret {self.code.cast(value, self.result)}")
        self.code.label(self.code.new("%after"))

    def _leave(self, to: str) -> None:
        self.code.jump(to)
        self.code.label(self.code.new("%after"))

    def _set(self, target: ast.expr, source: ast.expr) -> None:
        if not isinstance(target, ast.Tuple):
            self._write(target, self.value(source))
            return
        assert isinstance(source, ast.Tuple)
        values = [self.value(part) for part in source.elts]
        for part, value in zip(target.elts, values, strict=True):
            self._write(part, value)

    def _write(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Subscript):
            self.code.store(self.value(target.value), self.value(target.slice), value)
        else:
            assert isinstance(target, ast.Name)
            self._assign(target.id, value)

    def _assign(self, name: str, value: Value) -> None:
        for turn in self._turns:
            turn.unchanged.discard(name)
        self._types[name] = value.type
        key = name, value.type
        if key not in self._memory:
            self._memory[key] = self.code.slot(value.type)
        self.code.lines.append(f"store {value}, ptr {self._memory[key]}")

    def _read(self, name: str) -> Value:
        kind = self._types.get(name)
        if kind is None:
            raise NotImplementedError(f"{name} has no type here, or several")
        for turn in self._turns:
            if name in turn.unchanged:
                turn.carried.add(name)
        return self.code.value(kind, f"load {kind.name}, ptr {self._memory[name, kind]}")

    def _choose(self, condition: Value, body: list[ast.stmt], otherwise: list[ast.stmt]) -> None:
        yes, no, end = (self.code.new(f"%{name}") for name in ("then", "else", "end"))
        self.code.branch(condition, yes, no)
        before, after = self._types, []
        for label, statements in ((yes, body), (no, otherwise)):
            self.code.label(label)
            self._types = dict(before)
            self._run(statements)
            self.code.jump(end)
            after.append(self._types)
        self.code.label(end)
        self._types = _joined(*after)

    @contextmanager
    def _loop(
        self, condition: _Condition, step: Callable[[], None] | None = None
    ) -> Iterator[None]:
        code = self.code
        head, body, again, end = (code.new(f"%{name}") for name in ("head", "body", "again", "end"))
        code.jump(head)
        code.label(head)
        before, turn = dict(self._types), _Turn({*self._types}, set())
        self._turns.append(turn)
        code.branch(condition(), body, end)
        code.label(body)
        self._exits.append((again, end))
        yield
        self._exits.pop()
        code.jump(again)
        code.label(again)
        if step is not None:
            step()
        code.jump(head)
        code.label(end)
        self._turns.pop()
        for name in turn.carried:
            if self._types[name] != before[name]:
                raise NotImplementedError(f"{name} has another type in the second turn of a loop")
        self._types = _joined(before, self._types)

    def _for(
        self, name: str, limits: list[Value], texts: list[ast.expr], body: list[ast.stmt]
    ) -> None:
        code = self.code
        limits = [code.cast(limit, I64) for limit in limits]
        begin = limits[0] if len(limits) > 1 else constant(0)
        end = limits[min(1, len(limits) - 1)]
        step = limits[2] if len(limits) > 2 else constant(1)
        down = len(limits) > 2 and ast.unparse(texts[2]).startswith("-")
        memory = code.slot(I64)
        code.lines.append(f"store {begin}, ptr {memory}")

        def number() -> Value:
            return code.value(I64, f"load i64, ptr {memory}")

        def onward() -> None:
            following = code.value(I64, f"add nsw {number()}, {step.text}")
            code.lines.append(f"store {following}, ptr {memory}")

        with self._loop(lambda: code.compare("Gt" if down else "Lt", number(), end), onward):
            self._assign(name, number())
            self._run(body)

    def value(self, node: ast.expr) -> Value:
        """Return the value of an expression."""
        code = self.code
        match node:
            case ast.Name(name):
                return self._read(name)
            case ast.Constant(bool() | int() | float() as number):
                return constant(number)
            case ast.Attribute() if ast.unparse(node) in CONSTANTS:
                return constant(CONSTANTS[ast.unparse(node)])
            case ast.Subscript(array, index):
                return code.load(self.value(array), self.value(index))
            case ast.UnaryOp(ast.USub(), operand):
                return code.negative(self.value(operand))
            case ast.UnaryOp(ast.Not(), operand):
                return code.compare("Eq", code.truth(self.value(operand)), constant(False))
            case ast.BinOp(left, operation, right):
                return self._binary(left, operation, right)
            case ast.Compare(left, operations, others):
                return self._compare(left, operations, others)
            case ast.BoolOp(operation, parts):
                return self._logic(isinstance(operation, ast.And), parts)
            case ast.IfExp(condition, yes, no):
                return self._either(self.value(condition), yes, no)
            case ast.Call():
                result = self._call(node)
                if result is not None:
                    return result
        raise _unknown(node)

    def _binary(self, left: ast.expr, operation: ast.operator, right: ast.expr) -> Value:
        return self.code.binary(type(operation).__name__, self.value(left), self.value(right))

    def _compare(
        self, left: ast.expr, operations: list[ast.cmpop], others: list[ast.expr]
    ) -> Value:
        values = [self.value(node) for node in (left, *others)]
        names = [type(operation).__name__ for operation in operations]
        pairs = zip(names, itertools.pairwise(values), strict=True)
        results = [self.code.compare(name, a, b) for name, (a, b) in pairs]
        return reduce(partial(self.code.binary, "BitAnd"), results)

    def _logic(self, all_of: bool, parts: list[ast.expr]) -> Value:
        """Return whether all, or any, are true; what behind the first that decides is not computed."""
        code, memory, end = self.code, self.code.slot(TRUTH), self.code.new("%end")
        for node in parts:
            truth = code.truth(self.value(node))
            code.lines.append(f"store {truth}, ptr {memory}")
            more = code.new("%more")
            code.branch(truth, *((more, end) if all_of else (end, more)))
            code.label(more)
        code.jump(end)
        code.label(end)
        return code.value(TRUTH, f"load i1, ptr {memory}")

    def _either(self, condition: Value, yes: ast.expr, no: ast.expr) -> Value:
        """Return one of two values, of which the other is not computed."""
        code = self.code
        code.branch(condition, *(labels := (code.new("%then"), code.new("%else"))))
        before, arms = code.lines, []
        for label, node in zip(labels, (yes, no), strict=True):
            code.lines = []
            code.label(label)
            arms.append((self.value(node), code.lines))
        (a, _), (b, _) = arms
        kind = a.type if a.type == b.type else joint(a.type, b.type)
        memory, end = code.slot(kind), code.new("%end")
        for value, lines in arms:
            code.lines = lines
            code.lines.append(f"store {code.cast(value, kind)}, ptr {memory}")
            code.jump(end)
        code.lines = [*before, *arms[0][1], *arms[1][1]]
        code.label(end)
        return code.value(kind, f"load {kind.name}, ptr {memory}")

    def _scope(self, access: ast.Call) -> str:
        """Return what LLVM is told of the place that a load or store touches."""
        pointer = access.args[0]
        if not isinstance(pointer, ast.Name) or pointer.id not in self._places:
            raise _unknown(access)
        return self.code.apart(self._places[pointer.id], 1 + max(self._places.values()))

    def _call(self, node: ast.Call) -> Value | None:
        name = ast.unparse(node.func)
        if name == "overlap":
            return None
        operands = [self.value(argument) for argument in node.args]
        if name in ("load", "store"):
            access = getattr(self.code, name)
            return access(*operands, scope=self._scope(node))
        if name in CALLS:
            return CALLS[name](self.code, *operands)
        if name not in self._module.functions:
            raise _unknown(node)
        result, symbol = self._module.specialised(name, tuple(v.type for v in operands))
        return self.code.value(
            result, f"call {result.name} {symbol}({', '.join(map(str, operands))})"
        )


def _places(function: ast.FunctionDef) -> dict[str, int]:
    """Number the places in memory that a function loads from or stores to, by the names of pointers."""
    accessed: list[str] = []
    joined: dict[str, str] = {}  # a pointer to another that leads to the same place

    def first(name: str) -> str:
        while name in joined:
            name = joined[name]
        return name

    for node in ast.walk(function):
        match node:
            case ast.Call(ast.Name("load" | "store"), [ast.Name(name), *_]):
                accessed.append(name)
            case ast.Assign([ast.Name(a)], ast.Name(b)) | ast.Call(
                ast.Name("overlap"), [ast.Name(a), ast.Name(b)]
            ):
                if first(a) != first(b):
                    joined[first(a)] = first(b)
    numbers: dict[str, int] = {}
    return {name: numbers.setdefault(first(name), len(numbers)) for name in accessed}


def _joined(a: dict[str, Type | None], b: dict[str, Type | None]) -> dict[str, Type | None]:
    """Return the types of variables where two ways meet."""
    return {name: kind if b.get(name, kind) == kind else None for name, kind in {**b, **a}.items()}


def _unknown(node: ast.AST) -> NotImplementedError:
    return NotImplementedError(f"no compiled form of {ast.unparse(node)}")
