"""Operator: one call of a declared op, with the names it reads and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ...strategies.errors import InvalidArgument, InvalidType, InvalidValue, Unsupported, nearest
from ..ops.lod import Lods, of_each
from ..ops.operands import LOD_SUFFIX, Slot
from ..ops.registry import OFFSETS, OPS, Inference, Op, Spec, declaration
from ..ops.rules import UNKNOWN_SIZE
from .known import LEFT_TO_RUN, NEEDLESS, READ_IN_STEPS, Number, numbers_in_use, with_numbers
from .role import CALLSTACK, EMPTY_VAR, GRAD_SUFFIX, ROLE, STAMPED
from .variable import Variable

if TYPE_CHECKING:
    from .block import Block

Names = dict[str, list[str]]
_PLAIN = frozenset((bool, int, float, str))
_LEVEL = None  # all that is known of one is that it is there


class Operator:
    """An op type, its arguments by slot, and its attributes (defaults filled in).

    Slots and attributes are those of Paddle's op of the same type. Shapes and dtypes of the outputs are
    inferred at once, so a mistake is reported at the line that made it.
    """

    def __init__(
        self,
        block: Block,
        type: str,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> None:
        if type is None:
            raise InvalidValue("an operator needs a type, got None.")
        entry = declaration(type)
        if entry is None:
            raise InvalidValue(f"no operator {type!r} is declared.{nearest(type, OPS)}")
        self.block = block
        self.type = type
        self.declaration: Op = entry
        self.inputs = self._arguments("input", self.declaration.input_slots, inputs)
        self.outputs = self._arguments("output", self.declaration.output_slots, outputs)
        self.attrs = self._attributes(attrs or {})
        self.names_inputs = inputs is not None and bool(inputs)
        self.explicit = {name for name, value in (attrs or {}).items() if value is not None}
        self.file_kinds: dict[str, int] | None = None  # of the attributes, if it was loaded
        self.file_fields: dict[str, Any] = {}

    @classmethod
    def loaded(
        cls,
        block: Block,
        type: str,
        inputs: Names,
        outputs: Names,
        attrs: dict[str, Any],
        kinds: dict[str, int] | None = None,
    ) -> Operator:
        """Return an op as a file describes it, also one that is not built here, which only running it refuses.

        ``kinds``: of the attributes, by number; None if they follow from the op type.
        """
        op = cls.__new__(cls)
        op.block, op.type = block, type
        op.declaration = declaration(type) or _unbuilt(type)
        op.inputs, op.outputs, op.attrs = inputs, outputs, attrs
        op.explicit, op.names_inputs = set(attrs), True
        op.file_kinds, op.file_fields = kinds, {}
        return op

    def _arguments(
        self, kind: str, slots: tuple[Slot, ...], arguments: Mapping[str, Any] | None
    ) -> Names:
        names = {slot: _names(self.type, slot, args) for slot, args in (arguments or {}).items()}
        slot_names = {slot.name for slot in slots}
        for slot_name in names:
            if slot_name not in slot_names:
                raise InvalidValue(
                    f"{self.type} has no {kind} {slot_name!r}.{nearest(slot_name, slot_names)} "
                    f"It has: {', '.join(sorted(slot_names)) or 'none'}."
                )
        for slot in slots:
            count = len(names.get(slot.name, ()))
            if count == 0 and not slot.optional:
                error = InvalidArgument if kind == "input" else InvalidValue
                raise error(f"{self.type}: the {kind} {slot.name!r} is missing.")
            if count > 1 and not slot.duplicable:
                raise InvalidValue(
                    f"{self.type}: {kind} {slot.name!r} takes one variable, got {count}."
                )
        return {slot.name: names[slot.name] for slot in slots if names.get(slot.name)}

    def _attributes(self, explicit: Mapping[str, Any]) -> dict[str, Any]:
        attrs = dict(self.declaration.attrs)
        for name, value in explicit.items():
            if name not in attrs and name not in STAMPED:
                raise InvalidValue(f"{self.type} has no attribute {name!r}.{nearest(name, attrs)}")
            if value is not None:
                attrs[name] = plain(value)
        return attrs

    def input(self, slot: str) -> list[str]:
        """Return the names in an input slot (empty if the slot is unused).

        Raises:
            InvalidValue: the op has no such slot.
        """
        return self._slot("input", slot, self.inputs, self.declaration.input_slots)

    def output(self, slot: str) -> list[str]:
        """Return the names in an output slot (empty if the slot is unused).

        Raises:
            InvalidValue: the op has no such slot.
        """
        return self._slot("output", slot, self.outputs, self.declaration.output_slots)

    def _slot(self, kind: str, slot: str, arguments: Names, slots: tuple[Slot, ...]) -> list[str]:
        slot_names = {s.name for s in slots}
        if slot not in arguments and slot not in slot_names:
            raise InvalidValue(f"{self.type} has no {kind} {slot!r}.{nearest(slot, slot_names)}")
        return arguments.get(slot, [])

    @property
    def input_arg_names(self) -> list[str]:
        """Every name read, in slot order."""
        return [name for names in self.inputs.values() for name in names]

    @property
    def output_arg_names(self) -> list[str]:
        """Every name written, in slot order."""
        return [name for names in self.outputs.values() for name in names]

    def overwritten(self) -> set[str]:
        """Return the names that it writes as a whole without reading them: nothing lasts of what stood there.

        A block may leave them as they are, and one entry is written of an array.
        """
        if "sub_block" in self.attrs:
            return set()
        names = set(self.output_arg_names).difference(self.input_arg_names, [EMPTY_VAR])
        return {name for name in names if not self.block.has_array(name)}

    @property
    def input_names(self) -> list[str]:
        """The input slots in use."""
        return list(self.inputs)

    @property
    def output_names(self) -> list[str]:
        """The output slots in use."""
        return list(self.outputs)

    def attr(self, name: str) -> Any:
        """Return an attribute's value.

        Raises:
            InvalidValue: the op has no such attribute.
        """
        if name not in self.attrs:
            raise InvalidValue(f"{self.type} has no attribute {name!r}.{nearest(name, self.attrs)}")
        return self.attrs[name]

    def set_attr(self, name: str, value: Any) -> None:
        """Give an attribute another value.

        Raises:
            InvalidValue: the op has no such attribute.
        """
        self.attr(name)
        self.attrs[name] = plain(value)
        self.block.program.touch()

    def _remove_attr(self, name: str) -> None:
        self.attr(name)
        if name in self.declaration.attrs:
            self.attrs[name] = self.declaration.attrs[name]
        else:
            del self.attrs[name]
        self.block.program.touch()

    _set_attr = set_attr

    @property
    def desc(self) -> OpDesc:
        """The declaration of the operator, with the methods of Paddle's ``OpDesc``."""
        return OpDesc(self)

    @property
    def idx(self) -> int:
        """The operator's place among those of its block.

        Raises:
            InvalidValue: it was removed.
        """
        for i, op in enumerate(self.block.ops):
            if op is self:
                return i
        raise InvalidValue(f"this {self.type} is in its block no more.")

    def has_attr(self, name: str) -> bool:
        """Tell whether the op has this attribute."""
        return name in self.attrs

    def all_attrs(self) -> dict[str, Any]:
        """Return a copy of every attribute."""
        return dict(self.attrs)

    @property
    def attr_names(self) -> list[str]:
        """Names of every attribute."""
        return list(self.attrs)

    @property
    def role(self) -> int:
        """The op's role flags."""
        return int(self.attrs.get(ROLE, 0))

    @property
    def where(self) -> str:
        """The user's line that built the op, or an empty string."""
        return user_frame(self.attrs.get(CALLSTACK) or ())

    def rename_input(self, old: str, new: str) -> None:
        """Read ``new`` wherever the op read ``old``."""
        _rename(self.inputs, old, new)
        self.block.program.touch()

    def rename_output(self, old: str, new: str) -> None:
        """Write ``new`` wherever the op wrote ``old``."""
        _rename(self.outputs, old, new)
        self.block.program.touch()

    _rename_input, _rename_output = rename_input, rename_output

    def infer(self) -> None:
        """Set shape and dtype of every output variable from the inputs'.

        Raises:
            ShapeError: the operands do not fit together; the message names them and the user's line.
            InvalidValue: a number of the op is given as a variable whose value is not known.
        """
        inputs, attrs = self.resolve_numbers()
        operands = {slot: [self._spec(name) for name in names] for slot, names in inputs.items()}
        lods = _LodLevels(self)
        for lod in self.declaration.lod_slots:
            levels = lods.of(lod.name.removesuffix(LOD_SUFFIX))
            if levels:
                operands[lod.name] = [OFFSETS] * len(levels)
        specs = self.declaration.infer(
            Inference(self.declaration, operands, attrs, inputs, self.where)
        )
        for slot, names in self.outputs.items():
            for name, spec in zip(names, specs.get(slot, ()), strict=False):
                if name != EMPTY_VAR and spec is not None:
                    variable = self.block.var_recursive(name)
                    variable.desc.set_shape(spec.shape)
                    variable.desc.set_dtype(spec.dtype)
        if self.type in LEFT_TO_RUN and "Shape" in self.inputs:
            variable = self.block.var_recursive(self.output("Out")[0])
            variable.desc.set_shape(self._as_declared(variable.shape or ()))
        for result, rule in self.declaration.lod(lods).items():
            names = self.outputs.get(result, [])
            for name, levels in zip(names, of_each(rule, len(names)), strict=False):
                if name != EMPTY_VAR:
                    self.block.var_recursive(name).desc.set_lod_level(len(levels))

    def resolve_numbers(self) -> tuple[Mapping[str, list[str]], dict[str, Any]]:
        """Return the inputs without slots of numbers, and the attributes with those numbers.

        Of an op that can read numbers while the program runs both stay as they are, unless all are known, or
        one size of a new shape is left open and follows from the others.

        Raises:
            InvalidValue: the value of a variable is not known before the program runs.
        """
        slots = numbers_in_use(self.declaration, self.inputs)
        if not slots:
            return self.inputs, self.attrs
        end = next((i for i, other in enumerate(self.block.ops) if other is self), None)
        known_value = self.block.known_value
        numbers_by_slot = {
            slot: [Number(known_value(name, end), name) for name in self.inputs[slot]]
            for slot in slots
        }
        others = {slot: names for slot, names in self.inputs.items() if slot not in slots}
        elements = [n.elements for numbers in numbers_by_slot.values() for n in numbers]
        absent = any(e is None or UNKNOWN_SIZE in e for e in elements)
        if absent and self.type in NEEDLESS:
            return others, self.attrs
        rest = self.type in LEFT_TO_RUN and not any(e is None for e in elements)
        if absent and self.type in READ_IN_STEPS and not rest:
            return self.inputs, self.attrs
        attrs = with_numbers(self.declaration, numbers_by_slot, self.attrs, self.where)
        if absent and not self._takes_the_rest(attrs["shape"]):
            return self.inputs, self.attrs
        return others, attrs

    def _as_declared(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return a new shape with the sizes declared beside a tensor of sizes where the batch decides.

        Programs see Paddle's shape so, and build from it what Paddle would.
        """
        declared = self.attrs["shape"]
        if len(declared) != len(shape):
            return shape
        sizes = zip(shape, declared, strict=True)
        return tuple(n if size == -1 and n > 0 else size for size, n in sizes)

    def _takes_the_rest(self, shape: Sequence[int]) -> bool:
        """Tell whether the size that X leaves open equals the one that a new shape leaves open."""
        old = self.block.var_recursive(self.input("X")[0]).shape or ()
        new = [old[i] if n == 0 and i < len(old) else n for i, n in enumerate(shape)]
        same = prod(n for n in old if n >= 0) == prod(n for n in new if n >= 0)
        return same and list(old).count(-1) == new.count(-1) == 1

    def _spec(self, name: str) -> Spec | None:
        if name == EMPTY_VAR:
            return None
        variable = self.block.find_var_recursive(name)
        if variable is None and GRAD_SUFFIX not in name:
            self.block.var_recursive(name)
        # The gradient of a step's state comes from the next step: no op of the program computes it.
        if variable is None or variable.shape is None or variable.dtype is None:
            return None
        return Spec(variable.shape, variable.dtype)

    def to_string(self, throw_on_error: bool = True) -> str:
        """Return one line: ``{Out=['y']} = mul(inputs={X=['x'], ...}, op_role=0, ...)``."""
        attrs = ", ".join(f"{k}={v!r}" for k, v in sorted(self.attrs.items()) if k != CALLSTACK)
        return (
            f"{{{_slots(self.outputs)}}} = {self.type}(inputs={{{_slots(self.inputs)}}}, {attrs})"
        )

    __repr__ = __str__ = to_string


class OpDesc:
    """The declaration of an operator, with the methods of Paddle's C++ class.

    ``infer_shape`` follows sizes that changed, as those of pruned parameters.
    """

    def __init__(self, op: Operator) -> None:
        self._op = op

    def type(self) -> str:
        return self._op.type

    def block(self) -> Block:
        return self._op.block

    def input_names(self) -> list[str]:
        return self._op.input_names

    def output_names(self) -> list[str]:
        return self._op.output_names

    def input(self, slot: str) -> list[str]:
        return self._op.input(slot)

    def output(self, slot: str) -> list[str]:
        return self._op.output(slot)

    def input_arg_names(self) -> list[str]:
        return self._op.input_arg_names

    def output_arg_names(self) -> list[str]:
        return self._op.output_arg_names

    def set_input(self, slot: str, names: Sequence[str]) -> None:
        self._op.input(slot)  # refuses a slot that there is not
        self._op.inputs[slot] = list(names)
        self._op.block.program.touch()

    def set_output(self, slot: str, names: Sequence[str]) -> None:
        self._op.output(slot)
        self._op.outputs[slot] = list(names)
        self._op.block.program.touch()

    def _rename_input(self, old: str, new: str) -> None:
        self._op.rename_input(old, new)

    def _rename_output(self, old: str, new: str) -> None:
        self._op.rename_output(old, new)

    def attr_names(self) -> list[str]:
        return self._op.attr_names

    def has_attr(self, name: str) -> bool:
        return self._op.has_attr(name)

    def attr(self, name: str) -> Any:
        return self._op.attr(name)

    def _set_attr(self, name: str, value: Any) -> None:
        self._op.set_attr(name, value)

    def infer_shape(self, block: Block) -> None:
        self._op.infer()
        self._op.block.program.touch()


class _LodLevels(Lods[None]):
    """Numbers of levels of sequences of an operator's variables: all that is known while a program is built."""

    def __init__(self, op: Operator) -> None:
        self._op = op
        self.type, self.attrs = op.type, op.attrs
        self.input_slots = op.declaration.input_slots
        self.output_slots = op.declaration.output_slots

    def of(self, slot: str, position: int = 0) -> tuple[None, ...]:
        """Return as many levels as the variable is declared to have."""
        names = self._op.inputs.get(slot, ())
        if position >= len(names) or names[position] == EMPTY_VAR:
            return ()
        return (_LEVEL,) * self._op.block.var_recursive(names[position]).lod_level

    def uses(self, slot: str) -> int:
        """Return how many variables stand in an input slot."""
        return len(self._op.inputs.get(slot, ()))

    def as_long(self, slot: str, result: str) -> bool:
        """Compare the declared shapes."""
        names = [*self._op.inputs.get(slot, ())[:1], *self._op.outputs.get(result, ())[:1]]
        if len(names) < 2 or EMPTY_VAR in names:
            return False
        shapes = [self._op.block.var_recursive(name).shape or () for name in names]
        return all(shapes) and shapes[0][0] == shapes[1][0]

    def level(
        self, op: str, inputs: Mapping[str, Sequence[None]], attrs: Mapping[str, Any] | None = None
    ) -> None:
        """Return a level."""
        return _LEVEL

    def value(self, slot: str, position: int = 0) -> None:
        """Return what stands for any value."""
        return _LEVEL


def plain(value: Any) -> Any:
    """Return an attribute's value as Python's numbers and lists: NumPy's are in no file and no message."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if not isinstance(value, (list, tuple)):
        return value
    if _PLAIN.issuperset(map(type, value)):  # a parameter's first values may be millions
        return list(value)
    return [plain(item) for item in value]


def user_frame(stack: Sequence[str]) -> str:
    """Return the user's frame of a call stack (stacks of Paddle's files begin with Paddle's own frames)."""
    frames = [str(frame).strip().split("\n")[0] for frame in stack]
    return next((f for f in frames if "/paddle/" not in f), frames[0] if frames else "")


@cache
def _unbuilt(type: str) -> Op:
    """Return a declaration that stands for an op type which is not built."""

    def shape(inference: Inference) -> NoReturn:
        raise Unsupported(f"the operator {type!r} is not built.{nearest(type, OPS)}")

    return Op(type, shape=shape)


def _names(op_type: str, slot: str, args: Any) -> list[str]:
    if args is None:
        return []
    if not isinstance(args, (list, tuple)):
        args = [args]
    names = []
    for arg in args:
        if isinstance(arg, Variable):
            names.append(arg.name)
        elif isinstance(arg, bytes):
            names.append(arg.decode())
        elif isinstance(arg, str):
            names.append(arg)
        else:
            raise InvalidType(
                f"{op_type}: {slot!r} takes a Variable or its name, got {arg!r} ({type(arg).__name__})."
            )
    return names


def _rename(slots: Names, old: str, new: str) -> None:
    for slot, names in slots.items():
        slots[slot] = [new if name == old else name for name in names]


def _slots(slots: Names) -> str:
    return ", ".join(f"{slot}={names}" for slot, names in slots.items())
