"""Typed values in LLVM's language, and the instructions that compute others of them.

Numbers are computed with each other as integers of 64 bits, signed if one of them is; two float32 as float32,
any other pair with a float as float64. A constant is an int64 or a float64.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple


class Type(NamedTuple):
    """A type: its name in LLVM, what its bits are (signed, unsigned, float, truth, pointer), and how many."""

    name: str
    kind: str
    bits: int
    element: str = ""  # of a pointer: a key of :data:`TYPES`


TYPES = {
    "float32": Type("float", "float", 32),
    "float64": Type("double", "float", 64),
    "int8": Type("i8", "signed", 8),
    "int32": Type("i32", "signed", 32),
    "int64": Type("i64", "signed", 64),
    "uint8": Type("i8", "unsigned", 8),
    "uint16": Type("i16", "unsigned", 16),
    "uint32": Type("i32", "unsigned", 32),
    "uint64": Type("i64", "unsigned", 64),
    "bool_": Type("i1", "truth", 1),
}
F32, F64, I32, I64 = (TYPES[name] for name in ("float32", "float64", "int32", "int64"))
U64, TRUTH = TYPES["uint64"], TYPES["bool_"]
POINTERS = {
    "f32": "float32", "f64": "float64", "i8": "int8", "u8": "uint8", "u16": "uint16", "i32": "int32",
    "u32": "uint32", "i64": "int64",
}  # fmt: skip
_SUFFIXES = {F32: "f32", F64: "f64"}
_INTEGER = {
    "Add": "add",
    "Sub": "sub",
    "Mult": "mul",
    "BitAnd": "and",
    "BitOr": "or",
    "BitXor": "xor",
}
_FLOAT = {"Add": "fadd", "Sub": "fsub", "Mult": "fmul", "Div": "fdiv"}
_ORDER = {"Lt": "lt", "LtE": "le", "Gt": "gt", "GtE": "ge"}


class Value(NamedTuple):
    """A value: its type, and its name or constant in the text."""

    type: Type
    text: str

    def __str__(self) -> str:
        return f"{self.type.name} {self.text}"


def constant(number: bool | int | float) -> Value:
    """Return a number of Python's: a truth, an integer of 64 bits or a float64."""
    if isinstance(number, bool):
        return Value(TRUTH, str(number).lower())
    if isinstance(number, int):
        return Value(I64 if number < 1 << 63 else U64, str(number))
    return Value(F64, f"0x{struct.unpack('Q', struct.pack('d', number))[0]:016X}")


def joint(a: Type, b: Type) -> Type:
    """Return the type in which numbers of two types are computed with each other."""
    if "float" in (a.kind, b.kind):
        return F32 if a == b == F32 else F64
    return U64 if a.kind == b.kind == "unsigned" else I64


class Instructions:
    """The instructions of a function, as text; ``metadata`` are those of the module, by text."""

    def __init__(self, metadata: dict[str, str], declared: set[str]) -> None:
        self.slots: list[str] = []  # memory of variables: at the begin of the function
        self.lines: list[str] = []
        self._metadata, self._declared, self._count = metadata, declared, 0

    def new(self, prefix: str) -> str:
        """Return a name that is new in the function."""
        self._count += 1
        return f"{prefix}{self._count}"

    def value(self, type: Type, instruction: str) -> Value:
        """Add an instruction that has a result."""
        name = self.new("%t")
        self.lines.append(f"{name} = {instruction}")
        return Value(type, name)

    def slot(self, type: Type) -> str:
        """Return memory for a variable."""
        name = self.new("%m")
        self.slots.append(f"{name} = alloca {type.name}")
        return name

    def label(self, name: str) -> None:
        """Begin a block, behind the end of another."""
        self.lines.append(f"{name[1:]}:")

    def jump(self, to: str) -> None:
        """End a block."""
        self.lines.append(f"br label {to}")

    def branch(self, condition: Value, yes: str, no: str) -> None:
        """End a block by a choice of the next."""
        self.lines.append(f"br {self.truth(condition)}, label {yes}, label {no}")

    def cast(self, value: Value, to: Type) -> Value:
        """Return a number in another type."""
        source = value.type
        if source == to:
            return value
        if to == TRUTH:
            return self.truth(value)
        if (source.name, source.kind) == (to.name, to.kind) or "pointer" in (source.kind, to.kind):
            raise TypeError(f"{source} does not become {to}")
        if source.kind == "float":
            if to.kind == "float":
                operation = "fptrunc" if to.bits < source.bits else "fpext"
            else:
                operation = "fptosi" if to.kind == "signed" else "fptoui"
        elif to.kind == "float":
            operation = "sitofp" if source.kind == "signed" else "uitofp"
        elif source.bits == to.bits:
            return Value(to, value.text)
        elif source.bits > to.bits:
            operation = "trunc"
        else:
            operation = "sext" if source.kind == "signed" else "zext"
        return self.value(to, f"{operation} {value} to {to.name}")

    def truth(self, value: Value) -> Value:
        """Return whether a number is not zero."""
        if value.type == TRUTH:
            return value
        zero = "0.0" if value.type.kind == "float" else "0"
        operation = "fcmp une" if value.type.kind == "float" else "icmp ne"
        return self.value(TRUTH, f"{operation} {value}, {zero}")

    def together(self, a: Value, b: Value) -> tuple[Value, Value]:
        """Return two numbers in the type in which they are computed with each other."""
        to = joint(a.type, b.type)
        return self.cast(a, to), self.cast(b, to)

    def binary(self, operation: str, a: Value, b: Value) -> Value:
        """Return the result of one of Python's operators, by its name in ``ast``."""
        if operation in ("LShift", "RShift"):
            to = U64 if a.type.kind == "unsigned" else I64
            right = "lshr" if to == U64 else "ashr"
            name = "shl" if operation == "LShift" else right
            return self.value(to, f"{name} {self.cast(a, to)}, {self.cast(b, to).text}")
        if a.type == b.type == TRUTH and operation.startswith("Bit"):
            return self.value(TRUTH, f"{_INTEGER[operation]} {a}, {b.text}")
        a, b = self.together(a, b)
        if operation == "Div":
            a, b = (self.cast(v, F64) if v.type.kind != "float" else v for v in (a, b))
        if a.type.kind == "float":
            return self.float(_FLOAT[operation], a, b)
        if operation in ("FloorDiv", "Mod"):
            return self._divided(operation, a, b)
        return self.value(a.type, f"{_INTEGER[operation]} {a}, {b.text}")

    def float(self, name: str, a: Value, b: Value, flags: str = "contract") -> Value:
        """Return a result of floats. A product may be rounded together with the sum that it enters."""
        return self.value(a.type, f"{name} {flags} {a}, {self.cast(b, a.type).text}")

    def _divided(self, operation: str, a: Value, b: Value) -> Value:
        """Return a quotient of integers that is rounded down, or the rest; 0 of a division by zero."""
        name, signed = a.type.name, a.type.kind == "signed"
        none = self.value(TRUTH, f"icmp eq {b}, 0")
        divisor = self.select(none, constant(1), b)
        sign = "s" if signed else "u"
        quotient = self.value(a.type, f"{sign}div {a}, {divisor.text}")
        rest = self.value(a.type, f"{sign}rem {a}, {divisor.text}")
        if signed:
            apart = self.value(a.type, f"xor {rest}, {divisor.text}")
            below = self.value(TRUTH, f"icmp slt {apart}, 0")
            some = self.value(TRUTH, f"icmp ne {rest}, 0")
            less = self.value(TRUTH, f"and {below}, {some.text}")
            lower = self.value(a.type, f"sub {quotient}, 1")
            higher = self.value(a.type, f"add {rest}, {divisor.text}")
            quotient, rest = self.select(less, lower, quotient), self.select(less, higher, rest)
        result = quotient if operation == "FloorDiv" else rest
        return self.value(a.type, f"select {none}, {name} 0, {result}")

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        """Choose without a branch, so that loops around it become vectors."""
        no = self.cast(no, yes.type)
        return self.value(yes.type, f"select {self.truth(condition)}, {yes}, {no}")

    def compare(self, operation: str, a: Value, b: Value) -> Value:
        """Return the result of one of Python's comparisons, by its name in ``ast``."""
        if not a.type == b.type == TRUTH:
            a, b = self.together(a, b)
        if a.type.kind == "float":
            name = {"Eq": "oeq", "NotEq": "une"}.get(operation) or f"o{_ORDER[operation]}"
            return self.value(TRUTH, f"fcmp {name} {a}, {b.text}")
        sign = "s" if a.type.kind == "signed" else "u"
        name = {"Eq": "eq", "NotEq": "ne"}.get(operation) or f"{sign}{_ORDER[operation]}"
        return self.value(TRUTH, f"icmp {name} {a}, {b.text}")

    def negative(self, value: Value) -> Value:
        """Return a number with the other sign."""
        if value.type.kind == "float":
            return self.value(value.type, f"fneg {value}")
        return self.binary("Sub", constant(0), value)

    def intrinsic(self, name: str, *operands: Value) -> Value:
        """Return the result of a function that LLVM knows, in the type of its first operand."""
        kind = operands[0].type
        symbol = f"@llvm.{name}.{_SUFFIXES[kind]}"
        return self.call(kind, symbol, *(self.cast(v, kind) for v in operands))

    def call(self, result: Type, symbol: str, *operands: Value) -> Value:
        """Return the result of a function of floats that is not among those of the module."""
        kinds = ", ".join(v.type.name for v in operands)
        self._declared.add(f"declare {result.name} {symbol}({kinds})")
        arguments = ", ".join(map(str, operands))
        return self.value(result, f"call contract {result.name} {symbol}({arguments})")

    def pointer(self, address: Value, element: str) -> Value:
        """Return an address as a pointer."""
        kind = Type("ptr", "pointer", 64, element)
        return self.value(kind, f"inttoptr {self.cast(address, I64)} to ptr")

    def element(self, pointer: Value, index: Value) -> tuple[Type, Value]:
        """Return the type of the elements behind a pointer, and where one of them lies."""
        kind = TYPES[pointer.type.element]
        place = f"getelementptr {kind.name}, {pointer}, {self.cast(index, I64)}"
        return kind, self.value(pointer.type, place)

    def load(self, pointer: Value, index: Value, scope: str = "") -> Value:
        """Return an element; ``scope`` is what :meth:`apart` says of it."""
        kind, place = self.element(pointer, index)
        return self.value(kind, f"load {kind.name}, {place}{scope}")

    def store(self, pointer: Value, index: Value, value: Value, scope: str = "") -> None:
        """Write an element."""
        kind, place = self.element(pointer, index)
        self.lines.append(f"store {self.cast(value, kind)}, {place}{scope}")

    def ahead(self, pointer: Value, index: Value) -> None:
        """Have an element brought to the cache; it need not exist."""
        self._declared.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        _, place = self.element(pointer, index)
        self.lines.append(f"call void @llvm.prefetch.p0({place}, i32 0, i32 3, i32 1)")

    def apart(self, scope: int, scopes: int) -> str:
        """Say of an access to one place that it does not touch the other places."""
        note = self._note
        domain = note('!{!"rowlock"}')
        places = [note(f'!{{!"place {k}", {domain}}}') for k in range(scopes)]
        text = f", !alias.scope {note(f'!{{{places.pop(scope)}}}')}"
        return f"{text}, !noalias {note('!{' + ', '.join(places) + '}')}" if places else text

    def _note(self, text: str) -> str:
        return self._metadata.setdefault(text, f"!{len(self._metadata)}")

    def high_of_product(self, a: Value, b: Value) -> Value:
        """Return the upper 64 of the 128 bits of a product."""
        wide = Type("i128", "unsigned", 128)
        a, b = (self.cast(self.cast(v, U64), wide) for v in (a, b))
        product = self.value(wide, f"mul {a}, {b.text}")
        return self.cast(self.value(wide, f"lshr {product}, 64"), U64)

    def bits(self, value: Value, source: Type, to: Type) -> Value:
        """Return the bits of a number as one of another type."""
        return self.value(to, f"bitcast {self.cast(value, source)} to {to.name}")


def intrinsic(name: str) -> Callable[..., Value]:
    """Return what calls a function that LLVM knows."""
    return lambda code, *operands: code.intrinsic(name, *operands)


# What a source may call beside its own functions and NumPy's types.
CALLS: dict[str, Callable[..., Value | None]] = {
    "bits": lambda code, x: code.bits(x, F32, I32),
    "unbits": lambda code, x: code.bits(x, I32, F32),
    "select": Instructions.select,
    "ahead": Instructions.ahead,
    "high_of_product": Instructions.high_of_product,
    # The order of such additions is the compiler's; such a product is rounded before any sum that it enters.
    "plus": lambda code, a, b: code.float("fadd", a, b, "reassoc contract"),
    "product": lambda code, a, b: code.float("fmul", a, b, "arcp"),
    "min": lambda code, a, b: code.select(code.compare("Lt", b, a), *code.together(b, a)),
    "max": lambda code, a, b: code.select(code.compare("Gt", b, a), *code.together(b, a)),
    "fma": intrinsic("fma"),
    # of two numbers the larger or smaller, and nan if one is; rounding in one instruction
    "largest": intrinsic("maximum"),
    "least": intrinsic("minimum"),
    "nearest": intrinsic("rint"),
    "root": intrinsic("sqrt"),
    "whole_below": intrinsic("floor"),
    "whole_above": intrinsic("ceil"),
    "cut": intrinsic("trunc"),
    "size_of": intrinsic("fabs"),
    "math.sin": intrinsic("sin"),
    "math.cos": intrinsic("cos"),
    "math.tan": lambda code, x: code.call(F64, "@tan", code.cast(x, F64)),
}
for _name, _element in POINTERS.items():
    CALLS[_name] = lambda code, x, element=_element: code.pointer(x, element)
for _name, _type in TYPES.items():
    CALLS[f"np.{_name}"] = lambda code, x, to=_type: code.cast(x, to)
CONSTANTS = {"np.inf": float("inf"), "np.nan": float("nan")}
