"""The rewrite: every op of the forward pass gets its operands in the type it is to compute in.

The backward pass is built on the rewritten program, so gradients of casts are casts back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ....strategies.errors import InvalidState, nearest
from ....strategies.types import VarType
from ...program import unique_name
from ...program.block import Block, ProgramBlocks
from ...program.operator import Operator
from ...program.role import CALLSTACK, DEVICE, EMPTY_VAR, NAMESCOPE, ROLE, OpRole, grad_name
from ...program.scopes import name_scope
from ...program.variable import Parameter, Variable
from ...program.where import warn_user
from .lists import BLACK, AutoMixedPrecisionLists

GUARD = "__use_fp16__"
_SUFFIX = {VarType.FP16: "fp16", VarType.BF16: "bf16", VarType.FP32: "fp32"}
_TYPES = (VarType.FP32, VarType.FP16, VarType.BF16)
_FLOATS = (*_TYPES, VarType.FP64)
# Norms: scales and shifts of channels or features, and statistics, stay in float32.
_NARROW_INPUTS = {"batch_norm": {"X"}, "layer_norm": {"X"}, "fused_bn_add_activation": {"X", "Z"}}


@contextmanager
def fp16_guard() -> Iterator[None]:
    """Mark ops: where the guard is in force, only ops built inside compute in low precision."""
    with name_scope(GUARD):
        yield


@dataclass(frozen=True)
class Rules:
    """The rules by which a program is rewritten.

    ``level``: "O1" by the lists, ops in no list in float32; "O2" all ops but those that are kept, parameters
    too; "OD" the white list alone. ``guard``: only what was built in ``fp16_guard``. ``promote``: an op in no
    list computes in float32 if any operand is float32, else low. ``eager``: a gray op computes low unless its
    operands come from float32 (else it stays as it is unless one is low).
    """

    lists: AutoMixedPrecisionLists
    dtype: VarType = VarType.FP16
    level: str = "O1"
    guard: bool = False
    promote: bool = False
    eager: bool = True


def rewrite(program: ProgramBlocks, rules: Rules) -> set[str]:
    """Rewrite the forward pass of a program; return the parameters that are now in low precision.

    Raises:
        InvalidState: gradients of variables that would change exist already.
    """
    _warn_of_absent(program, rules.lists.black_varnames)
    lowered = set()
    if rules.level == "O2":
        for parameter in _low_parameters(program, rules):
            parameter.desc.set_dtype(rules.dtype)
            lowered.add(parameter.name)
    for block in program.blocks:
        _Rewriter(block, rules).run()
    program.touch()
    return lowered


def _warn_of_absent(program: ProgramBlocks, names: set[str]) -> None:
    variables = {name for block in program.blocks for name in block.vars}
    for name in sorted(names - variables):
        warn_user(
            f"mixed precision: custom_black_varnames has {name!r}, which is no variable of the program, so it "
            f"changes nothing.{nearest(name, variables)}"
        )


def _forward(op: Operator) -> bool:
    return op.role & 0xFF == int(OpRole.Forward)


def _kept_slot(op: Operator, slot: str) -> bool:
    """Tell whether an operand stays in float32 when the op computes in low precision."""
    return op.type in _NARROW_INPUTS and slot not in _NARROW_INPUTS[op.type]


def _out_of_reach(op: Operator, rules: Rules) -> bool:
    """Tell whether the user keeps an op in float32: by its type, or by the guard."""
    outside = rules.guard and GUARD not in str(op.attrs.get(NAMESCOPE, ""))
    return outside or op.type in rules.lists.unsupported_list


def _black(rules: Rules) -> set[str]:
    if rules.level == "OD":
        return rules.lists.all_list - rules.lists.white_list
    return rules.lists.black_list - (BLACK if rules.level == "O2" else frozenset())


def _low_parameters(program: ProgramBlocks, rules: Rules) -> list[Parameter]:
    """Return the float32 parameters that no op needs in float32."""
    reads: set[str] = set()
    wide = set(rules.lists.black_varnames)
    for op in (op for block in program.blocks for op in block.ops if _forward(op)):
        for slot, names in op.inputs.items():
            reads.update(names)
            # An op of the black list casts for itself: a table of rows may be a factor elsewhere.
            if _out_of_reach(op, rules) or _kept_slot(op, slot):
                wide.update(names)
    return [
        p for p in program.all_parameters() if p.name in reads - wide and p.dtype == VarType.FP32
    ]


class _Rewriter:
    """Walks one block in order, and records the type in which each variable was computed."""

    def __init__(self, block: Block, rules: Rules) -> None:
        self.block = block
        self.rules = rules
        self.black = _black(rules)
        self.types: dict[str, VarType] = {}
        self.casts: dict[tuple[str, VarType], str] = {}
        self.visited: set[str] = set()
        writes = Counter(name for op in block.ops for name in op.output_arg_names)
        self.fixed = {name for name, times in writes.items() if times > 1}

    def run(self) -> None:
        index = 0
        while index < len(self.block.ops):
            op = self.block.ops[index]
            if _forward(op):
                index += self._visit(op, index)
            for name in op.output_arg_names:
                for dtype in _TYPES:  # casts of the old value are of no use any more
                    self.casts.pop((name, dtype), None)
            if op.type == "cast":
                self._note_cast(op)
            self.visited.update(op.input_arg_names, op.output_arg_names)
            index += 1

    def _visit(self, op: Operator, index: int) -> int:
        """Rewrite one op; return how many casts were inserted before it."""
        if op.type == "cast":
            source = self.block.var_recursive(op.input("X")[0])
            if source.dtype is not None and op.attrs["in_dtype"] != int(source.dtype):
                op.attrs["in_dtype"] = int(source.dtype)
            return 0
        dtype = self._compute_type(op)
        if dtype is None:
            self._infer(op)
            return 0
        self.types.update(dict.fromkeys(op.output_arg_names, dtype))
        inserted = 0
        for slot, names in op.inputs.items():
            if dtype == VarType.FP32 or not _kept_slot(op, slot):
                for i, name in enumerate(names):
                    cast, new = self._cast(op, name, dtype, index + inserted)
                    names[i] = cast
                    inserted += new
        self._infer(op)
        return inserted

    def _compute_type(self, op: Operator) -> VarType | None:
        """Return the type in which an op is to compute (None: leave it as it is)."""
        if not self._computes(op):
            return None
        rules = self.rules
        black_names = rules.lists.black_varnames.intersection(
            op.input_arg_names + op.output_arg_names
        )
        if _out_of_reach(op, rules) or black_names or op.type in self.black or self._overwrites(op):
            return VarType.FP32
        if op.type in rules.lists.white_list:
            return rules.dtype
        if rules.promote:
            wide = any(
                self._type(name) == VarType.FP32
                for slot, names in op.inputs.items()
                if not _kept_slot(op, slot)
                for name in names
            )
            return VarType.FP32 if wide else rules.dtype
        if rules.level == "O2":
            return rules.dtype
        if op.type not in rules.lists.gray_list:
            return VarType.FP32
        operand_types = {self.types[name] for name in op.input_arg_names if name in self.types}
        if VarType.FP32 in operand_types:
            return VarType.FP32
        return rules.dtype if operand_types or rules.eager else None

    def _computes(self, op: Operator) -> bool:
        """Tell whether an op computes its results from floats."""
        if "in_dtype" not in op.attrs and any(
            op.attrs.get(name, -1) in _FLOATS for name in ("dtype", "out_dtype")
        ):
            return False
        return any(self._type(name) in _TYPES for name in op.input_arg_names)

    def _overwrites(self, op: Operator) -> bool:
        """Tell whether an op writes a variable that has another value too, which must have the same type."""
        for slot, names in op.outputs.items():
            norm = op.type in _NARROW_INPUTS and slot not in ("Y", "ReserveSpace")
            for name in names:
                if not norm and name != EMPTY_VAR:
                    persistable = self.block.var_recursive(name).persistable
                    has_value = name in self.visited or name in op.input_arg_names
                    if persistable or has_value or name in self.fixed:
                        return True
        return False

    def _type(self, name: str) -> VarType | None:
        variable = self.block.find_var_recursive(name)
        return (
            variable.dtype if variable is not None and variable.type == VarType.LOD_TENSOR else None
        )

    def _cast(self, op: Operator, name: str, dtype: VarType, index: int) -> tuple[str, int]:
        """Return the name of a variable in a type, and how many ops were inserted for it."""
        source_type = self._type(name)
        if source_type not in _TYPES or source_type == dtype:
            return name, 0
        if (name, dtype) in self.casts:
            return self.casts[name, dtype], 0
        source = self.block.var_recursive(name)
        cast = self._new(source, dtype)
        attrs = {key: op.attrs[key] for key in (CALLSTACK, NAMESCOPE, DEVICE) if key in op.attrs}
        attrs |= {"in_dtype": int(source_type), "out_dtype": int(dtype), ROLE: int(OpRole.Forward)}
        self.block._insert_op(index, "cast", {"X": source}, {"Out": cast}, attrs)
        self.casts[name, dtype] = cast.name
        return cast.name, 1

    def _new(self, source: Variable, dtype: VarType) -> Variable:
        name = f"{source.name}.cast_{_SUFFIX[dtype]}"
        if self.block.has_var(name):
            name = unique_name.generate(name)
        return self.block.create_var(
            name=name, dtype=dtype, stop_gradient=source.stop_gradient, lod_level=source.lod_level
        )

    def _note_cast(self, op: Operator) -> None:
        """Record a cast of an earlier rewrite, to read it again."""
        source, (cast,) = op.input("X")[0], op.output("Out")
        dtype = VarType(op.attrs["out_dtype"])
        if cast.startswith(f"{source}.cast_"):
            self.casts.setdefault((source, dtype), cast)

    def _infer(self, op: Operator) -> None:
        """Let results follow the operands.

        Raises:
            InvalidState: a result that changes has a gradient already.
        """
        names = [name for name in op.output_arg_names if name != EMPTY_VAR]
        old_types = [self._type(name) for name in names]
        op.infer()
        changes = [n for n, t in zip(names, old_types, strict=True) if self._type(n) != t]
        late = [name for name in changes if self.block.has_var(grad_name(name))]
        if late:
            raise InvalidState(
                f"mixed precision: {op.type} (built at {op.where}) would make {late[0]!r} in another type, "
                f"but its gradient exists. Decorate the optimizer before any backward pass is appended."
            )
