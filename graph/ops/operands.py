"""Records of ops: a class whose fields are the slots and attributes of one op::

    class LayerNorm(Operands):
        x: Input
        scale: Input | None      # may be left out
        y: Output
        epsilon: float = 1e-5    # an attribute, with its default
        groups: Positive = 1     # ... that is refused unless it is above 0: see :func:`limit_of`
        layout: Literal["NCHW", "NHWC"] = "NCHW"    # ... unless it is one of these

``Inputs`` and ``Outputs`` take any number of variables. Slots are named after fields: ``x_shape`` is XShape,
``d_x`` is X@GRAD; ``named`` gives another name. Every result of a gradient op may be left out. It is written
``Output | None`` where there are others: no kernel is called of which no result is wanted.

The record of a gradient op may derive from its op's: it has the attributes, and of the slots, operands and
results, those that it ``reads``, each of them an operand (``x?``: one that may be left out; ``*``: all of the
op's operands)::

    class LayerNormGrad(LayerNorm, reads="x mean"):
        d_y: Input
        d_x: Output

``x_lod: Offsets`` asks for the sequences of X: int64 offsets [sequences + 1] by level, outermost first; none if
X has no sequences. No program names this slot, X@LOD: it is filled when a graph is read (``ir/sequences.py``).

A kernel is bound to an instance: slots are arrays (None, or an empty list, where not in use).
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple, NoReturn, Self, TypeAlias, cast, dataclass_transform

import numpy as np

# An array of the device's module: CuPy's have the same methods.
Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

# Which fields are slots is read from the text of their annotations: resolving it takes a thousand times longer.
Input: TypeAlias = Array
Inputs: TypeAlias = list[Array]
Output: TypeAlias = Array
Outputs: TypeAlias = list[Array | None]
Offsets: TypeAlias = list[Array]
Positive: TypeAlias = int
NotNegative: TypeAlias = int


class Limit(NamedTuple):
    """A test of an attribute's value, and what the value must do, in words."""

    holds: Callable[[Any], bool]
    text: str


@cache
def limit_of(kind: str) -> Limit | None:
    """Return the limit that an annotation tells: Positive, NotNegative or a Literal (None: it tells none)."""
    if kind == "Positive":
        return Limit(lambda value: value > 0, "be above 0")
    if kind == "NotNegative":
        return Limit(lambda value: value >= 0, "not be negative")
    if not kind.startswith("Literal["):
        return None
    choices = ast.literal_eval(f"({kind[len('Literal[') : -1]},)")
    *others, last = map(repr, choices)
    return Limit(
        choices.__contains__, f"be {', '.join(others)} or {last}" if others else f"be {last}"
    )


class _Name(str):
    """A slot's name that does not follow from its field's."""


def named(name: str) -> Any:
    """Name the slot of a field whose name it does not follow from."""
    return _Name(name)


class Slot(NamedTuple):
    """One named operand of an op, and the field that stands for it."""

    name: str
    duplicable: bool
    optional: bool
    parameter: str

    @property
    def text(self) -> str:
        """The slot as Paddle's prototypes have it: ``X``, ``X*`` (any number), ``X?``, ``X*?``."""
        left_out = self.optional and "@GRAD" not in self.name
        return self.name + "*" * self.duplicable + "?" * left_out


@cache
def parameter_name(slot: str) -> str:
    """Return a slot name as a Python parameter: ``XShape`` -> x_shape, ``X@GRAD`` -> d_x."""
    base, grad, _ = slot.partition("@GRAD")
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", base).lower()
    return f"d_{snake}" if grad else snake


def attribute_name(parameter: str) -> str:
    """Return the attribute of a parameter: ``lambda_`` is ``lambda``, a keyword of Python."""
    return parameter.removesuffix("_")


class Declared(NamedTuple):
    """The slots and attributes of a record; ``lods`` are the slots of offsets, which no program names.

    ``kinds`` are attributes' types, as annotations say them.
    """

    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    attrs: Mapping[str, Any]
    lods: tuple[Slot, ...]
    kinds: Mapping[str, str]

    def read(self, fields: str = "") -> list[Slot]:
        """Return the slots of operands and offsets in these fields, or all."""
        chosen = fields.split()
        slots = (*self.inputs, *self.lods)
        return [slot for slot in slots if not chosen or slot.parameter in chosen]


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Operands:
    """Base of all records; an instance holds arrays and attributes for one kernel."""

    def __init_subclass__(cls, reads: str | None = None) -> None:
        if reads is not None:
            _READS[cls] = reads

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} cannot be changed: see replace")

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """Return the record of these values, which may be more than its fields; the mapping becomes its own."""
        record = cls.__new__(cls)
        object.__setattr__(record, "__dict__", values)
        return record

    def replace(self, **changes: Any) -> Self:
        """Return a record in which these fields differ."""
        return self.of({**self.__dict__, **changes})

    @classmethod
    @cache
    def declared(cls) -> Declared:
        """Return the slots and attributes of the fields, in their order: those of base classes come first.

        A field that is declared again takes its place among the new ones.
        """
        sides: dict[str, list[Slot]] = {"Input": [], "Output": [], "Offset": []}
        attrs: dict[str, Any] = {}
        fields: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            if base in _READS:
                fields = _read_fields(base, fields)
            for field, text in _annotations(base).items():
                fields.pop(field, None)
                fields[field] = text
        for field, text in fields.items():
            kind, optional, _ = text.partition(" | None")
            side, default = kind.removesuffix("s"), getattr(cls, field, None)
            if side not in sides:
                attrs[field] = default
                continue
            name = default if isinstance(default, _Name) else slot_name(field)
            if side == "Offset" and name is not default:
                name = lod_slot(slot_name(field.removesuffix("_lod")))
            dispensable = bool(optional) or (side == "Output" and "@GRAD" in name)
            sides[side].append(Slot(str(name), kind != side, dispensable, field))
        inputs, outputs, lods = (tuple(slots) for slots in sides.values())
        return Declared(inputs, outputs, attrs, lods, {name: fields[name] for name in attrs})


# Many records have the same bases.
_annotations = cache(inspect.get_annotations)
# Records of gradient ops that derive from their ops' -> what they read
_READS: dict[type, str] = {}


def _read_fields(gradient: type, fields: dict[str, str]) -> dict[str, str]:
    """Return the fields, with their annotations, that a gradient op's record has from its bases.

    What it reads comes first; its op's record is the first base.
    """
    op = cast(type[Operands], gradient.__bases__[0]).declared()
    slots = {slot.parameter for slot in (*op.inputs, *op.outputs)}
    kinds = {}
    operands = " ".join(slot.parameter for slot in op.inputs)
    for word in _READS[gradient].replace("*", operands).split():
        kind, optional, _ = fields[word.removesuffix("?")].partition(" | None")
        left_out = " | None" if optional or word.endswith("?") else ""
        kinds[word.removesuffix("?")] = kind.replace("Output", "Input") + left_out
    return {**kinds, **{field: kind for field, kind in fields.items() if field not in slots}}


def record(
    name: str,
    inputs: Iterable[Slot],
    outputs: Iterable[Slot],
    attrs: Mapping[str, Any],
    lods: Iterable[Slot] = (),
) -> type[Operands]:
    """Make the record of these slots, each under its parameter, and of attributes with their defaults."""
    kinds: dict[str, str] = {}
    defaults: dict[str, Any] = dict(attrs)
    for side, slots in (("Input", inputs), ("Output", outputs), ("Offset", lods)):
        for slot in slots:
            kinds[slot.parameter] = side + "s" * slot.duplicable + " | None" * slot.optional
            defaults[slot.parameter] = named(slot.name)
    kinds |= {name: type(value).__name__ for name, value in attrs.items()}
    return type(name, (Operands,), {**defaults, "__annotations__": kinds})


def record_of(reads: str, writes: str = "", /, **attrs: Any) -> type[Operands]:
    """Make the record of an op that no function is written for: slots by field, attributes and their defaults.

    ``x*`` takes any number of variables, ``x?`` may be left out, ``x_lod`` are offsets of X; ``x:x`` names the
    slot of a field whose name it does not follow from.
    """

    def slot(text: str) -> Slot:
        field, _, name = text.rstrip("*?").partition(":")
        return Slot(name or slot_name(field), "*" in text, "?" in text, field)

    slots = [slot(text) for text in reads.split()]
    lods = {s: s.parameter.removesuffix("_lod") for s in slots if s.parameter.endswith("_lod")}
    inputs = [s for s in slots if s not in lods]
    offsets = [Slot(lod_slot(slot_name(of)), True, False, s.parameter) for s, of in lods.items()]
    return record("Record", inputs, map(slot, writes.split()), attrs, offsets)


def slope_record(op: Declared, reads: str, writes: str) -> type[Operands]:
    """Make the record of a gradient op from that of its op: slots by field, and the op's attributes.

    ``d_x`` is the gradient of x; ``x?`` may be left out though the op needs it; kernels read the shape alone of
    ``(x)``. A result of the op that its gradient op reads is never left out. Offsets of a result that is not
    read are those of its gradient.
    """
    of = {slot.parameter: slot for slot in (*op.inputs, *op.outputs, *op.lods)}
    fields = [text.strip("()?") for text in reads.split()]
    results = (slot.name for slot in op.outputs if slot.parameter not in fields)
    offsets = {lod_slot(name): lod_slot(f"{name}@GRAD") for name in results}

    def slot(text: str) -> Slot:
        field = text.strip("()?")
        source = of.get(field) or of[field.removeprefix("d_")]
        name = source.name if field in of else f"{source.name}@GRAD"
        left_out = "?" in text or (source.optional and source not in op.outputs)
        return Slot(offsets.get(name, name), source.duplicable, left_out, field)

    slots = [*map(slot, reads.split())]
    lods = [s for s in slots if of.get(s.parameter) in op.lods]
    inputs = [s for s in slots if s not in lods]
    return record("Slope", inputs, map(slot, writes.split()), op.attrs, lods)


LOD_SUFFIX = "@LOD"


def lod_slot(slot: str) -> str:
    """Return the slot of the offsets of a slot's sequences."""
    return slot + LOD_SUFFIX


def slot_name(field: str) -> str:
    """Return the slot that a field stands for: ``x_shape`` is XShape, ``d_x`` is X@GRAD."""
    words = field.removeprefix("d_").split("_")
    name = "".join(word[:1].upper() + word[1:] for word in words)
    return f"{name}@GRAD" if field.startswith("d_") else name


class Unary(Operands):
    """One result, element by element or not, from one operand."""

    x: Input
    out: Output


class Binary(Operands):
    """One result from two operands."""

    x: Input
    y: Input
    out: Output


class Gradient(Operands):
    """The gradient of one operand; what it depends on follows from the names of those below."""

    d_out: Input
    d_x: Output


class SlopeOfX(Gradient):
    x: Input
    d_out: Input


class SlopeOfOut(Gradient):
    out: Input
    d_out: Input


class SlopeOfBoth(Gradient):
    x: Input
    out: Input
    d_out: Input


class BinaryGrad(Operands):
    """The gradients of two operands."""

    x: Input
    y: Input
    d_out: Input
    d_x: Output | None
    d_y: Output | None
