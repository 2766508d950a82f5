"""Programs as the bytes that Paddle reads and writes (``__model__``, ``.pdmodel``), and back.

Everything in a file is stored, also unknown op types, types of variables and blocks. A loaded program is
therefore written again byte by byte as it was.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from ....strategies.errors import InvalidValue
from ....strategies.types import VarType
from ..block import Block, ProgramBlocks
from ..operator import Operator
from ..role import CALLSTACK, DEVICE, NAMESCOPE, ROLE, ROLE_VAR, OpRole
from ..variable import Parameter, Variable
from .hash_order import hash_order
from .messages import HEAD, PROGRAM, Message, damaged, decode, encode
from .op_table import ALSO_GIVEN, FIELDS, LISTS, WITHOUT_LEVELS, Kind, entry_of, kind_of

PADDLE_VERSION = 1008005  # of the files written here: 1.8.5
_Program = TypeVar("_Program", bound=ProgramBlocks)
Slots = Mapping[str, list[str]]
_TYPES = {int(member): member for member in VarType}
# The field of a VarType message that describes the elements of a variable of each type.
_DESCRIBED = {
    VarType.LOD_TENSOR: "lod_tensor",
    VarType.LOD_TENSOR_ARRAY: "tensor_array",
    VarType.SELECTED_ROWS: "selected_rows",
    VarType.STRING: "string",
    VarType.STRINGS: "strings",
    VarType.VOCAB: "vocab",
    VarType.SPARSE_COO: "sparse_coo",
    VarType.SPARSE_CSR: "sparse_csr",
}
_LEVELS = ("lod_tensor", "tensor_array")  # have LoD levels beside the elements
_UNSAID = re.compile(r"tmp_\d+")  # results of + - * / on variables
_COPIES = 3  # that Paddle makes of a pruned program's variables
_STAMPS = (ROLE, ROLE_VAR, NAMESCOPE, CALLSTACK, DEVICE)  # in the order of their declaration


def serialize(program: ProgramBlocks) -> bytes:
    """Return the program as bytes.

    Raises:
        InvalidValue: an attribute has a value that no kind of attribute holds.
    """
    return encode("ProgramDesc", describe(program))


def parse(data: bytes, program: _Program, label: str = "the program") -> _Program:
    """Fill a new program with what the bytes hold, and return it; ``label`` names them in an error.

    Raises:
        DamagedFile: they hold none.
    """
    message = decode("ProgramDesc", bytes(data), label)
    try:
        return build(message, program)
    except _Wrong as wrong:
        raise damaged(label, None, str(wrong), PROGRAM, bytes(data[:HEAD])) from None


class _Wrong(Exception):
    """A message that fits the format and is no program."""


# -- from a program -------------------------------------------------------------------------------


def describe(program: ProgramBlocks) -> Message:
    """Return the program as a message."""
    message: Message = dict(program.file_fields)
    message.setdefault("version", {"version": PADDLE_VERSION})
    message["blocks"] = [_describe_block(block) for block in program.blocks]
    return message


def _describe_block(block: Block) -> Message:
    names = block.vars if block.from_file else hash_order(block.vars)
    message: Message = {**block.file_fields, "idx": block.idx, "parent_idx": block.parent_idx}
    variables = [_describe_variable(block.vars[name]) for name in names]
    operators = [_describe_op(op) for op in block.ops]
    if variables:
        message["vars"] = variables
    if operators:
        message["ops"] = operators
    if block.forward_block_idx != -1 or "forward_block_idx" in message:
        message["forward_block_idx"] = block.forward_block_idx
    return message


def _describe_variable(variable: Variable) -> Message:
    fields = variable.file_fields
    message: Message = {**fields, "name": variable.name, "type": _describe_type(variable)}
    if variable.persistable or (not fields and _states_persistable(variable)):
        message["persistable"] = bool(variable.persistable)
    elif "persistable" in fields:
        message["persistable"] = False
    if variable.need_check_feed or "need_check_feed" in fields:
        message["need_check_feed"] = bool(variable.need_check_feed)
    return message


def _states_persistable(variable: Variable) -> bool:
    """Tell whether Paddle writes ``persistable: false`` for a variable instead of leaving the field out."""
    unsaid = _UNSAID.fullmatch(variable.name) or variable.name.startswith("_generated_var_")
    return not unsaid and (variable.op is None or not variable.op.role & OpRole.Backward)


def _has_levels(variable: Variable) -> bool:
    """Tell whether Paddle writes the number of LoD levels of a temporary, even if it has none."""
    op = variable.op
    slots = [] if op is None else [s for s, names in op.outputs.items() if variable.name in names]
    return op is None or not any((op.type, slot) in WITHOUT_LEVELS for slot in slots)


def _describe_type(variable: Variable) -> Message:
    fields: Message = variable.file_fields.get("type", {})
    message: Message = {**fields, "type": int(variable.type)}
    field = _DESCRIBED.get(variable.type)
    if field is None or (variable.shape is None and variable.dtype is None):
        return message
    old_fields = fields.get(field, {})
    tensor = dict(old_fields.get("tensor", {}) if field in _LEVELS else old_fields)
    if variable.dtype is not None:
        tensor["data_type"] = int(variable.dtype)
    if variable.shape:
        tensor["dims"] = list(variable.shape)
    else:
        tensor.pop("dims", None)
    if field not in _LEVELS:
        message[field] = tensor
        return message
    message[field] = {**old_fields, "tensor": tensor}
    if variable.lod_level or (not fields and not variable.persistable and _has_levels(variable)):
        message[field]["lod_level"] = variable.lod_level
    return message


def _describe_op(op: Operator) -> Message:
    message: Message = {"type": op.type}
    for name, slots in zip(("inputs", "outputs"), _slots_of(op), strict=True):
        if slots:
            message[name] = [_describe_slot(slot, names) for slot, names in slots.items()]
    attrs = [_describe_attr(op, name, value) for name, value in _attributes_of(op)]
    if attrs:
        message["attrs"] = attrs
    return {**message, **op.file_fields}


def _slots_of(op: Operator) -> tuple[Slots, Slots]:
    """Return inputs and outputs in Paddle's order, with the unused slots that it names."""
    if op.file_kinds is not None:
        return op.inputs, op.outputs
    entry = entry_of(op.type)
    unused = entry.inputs if entry is not None and op.names_inputs else ()
    optional = [slot.name for slot in op.declaration.output_slots] if _is_gradient(op) else []
    return (
        {slot: op.inputs.get(slot, []) for slot in sorted({*unused, *op.inputs})},
        {slot: op.outputs.get(slot, []) for slot in sorted({*optional, *op.outputs})},
    )


def _is_gradient(op: Operator) -> bool:
    return bool(op.role & OpRole.Backward) and op.type.endswith(("_grad", "_grad2"))


def _describe_slot(slot: str, names: list[str]) -> Message:
    return {"parameter": slot, "arguments": list(names)} if names else {"parameter": slot}


def _attributes_of(op: Operator) -> list[tuple[str, Any]]:
    """Return the attributes in Paddle's order, with the defaults that Paddle fills in.

    Paddle first inserts the attributes that a layer passed, in the order of declaration, then the others.
    """
    if op.file_kinds is not None:
        return list(op.attrs.items())
    entry = entry_of(op.type)
    values = dict(op.attrs)
    order = [*(entry.attrs if entry is not None else ()), *_STAMPS]
    if entry is not None:
        for name, (_, default) in entry.attrs.items():
            if default is not None:
                values.setdefault(name, default)
    names = [name for name in order if name in values]
    names += [name for name in values if name not in order]
    explicit = {name for name in op.explicit if name not in (ROLE_VAR, DEVICE) or values[name]}
    explicit |= ALSO_GIVEN.get(op.type, set())
    if op.type == "conv2d" and values.get("groups") == 1:
        explicit.discard("groups")  # Paddle's layer leaves it out unless the user passed it
    names.sort(key=lambda name: name not in explicit)
    return [(name, values[name]) for name in hash_order(names)]


def order_as_copied(program: ProgramBlocks) -> None:
    """Put variables and attributes in the order that Paddle's copies of a pruned program end in.

    Pruning leaves variables sorted by name and attributes as they were written; copies put both into new
    tables.
    """
    for block in program.blocks:
        holders = [name for name in ("feed", "fetch") if name in block.vars]
        names = sorted(name for name in block.vars if name not in holders)
        for _ in range(_COPIES):
            names = hash_order(names)
        block.vars = OrderedDict((n, block.vars[n]) for n in hash_order([*names, *holders]))
        block.from_file = True
        for op in block.ops:
            values = dict(_attributes_of(op))
            ordered = list(values) if op.type in holders else hash_order(values)
            inputs, outputs = _slots_of(op)
            kinds = op.file_kinds or {}
            op.file_kinds = {n: kinds.get(n, _kind(op, n, values[n])) for n in ordered}
            op.attrs = {name: values[name] for name in ordered}
            op.inputs, op.outputs = dict(inputs), dict(outputs)


def _describe_attr(op: Operator, name: str, value: Any) -> Message:
    kind = (op.file_kinds or {}).get(name)
    kind = _kind(op, name, value) if kind is None else Kind(kind)
    message: Message = {"name": name, "type": int(kind)}
    try:
        plain = [_plain(item, kind) for item in value] if kind in LISTS else _plain(value, kind)
    except (TypeError, ValueError):
        raise InvalidValue(
            f"{op.type}: the attribute {name!r} is of kind {kind.name}, which cannot hold {value!r}."
        ) from None
    if plain != [] or kind not in LISTS:
        message[FIELDS[kind]] = plain
    return message


def _kind(op: Operator, name: str, value: Any) -> Kind:
    if isinstance(value, Block):
        return Kind.BLOCK
    blocks = isinstance(value, list) and value and isinstance(value[0], Block)
    return Kind.BLOCKS if blocks else kind_of(op.type, name, value)


def _plain(value: Any, kind: Kind) -> Any:
    if kind in (Kind.BLOCK, Kind.BLOCKS):
        return value.idx if isinstance(value, Block) else int(value)
    if kind in (Kind.INT, Kind.INTS, Kind.LONG, Kind.LONGS):
        return int(value)
    if kind in (Kind.BOOLEAN, Kind.BOOLEANS):
        return bool(value)
    if kind in (Kind.STRING, Kind.STRINGS, Kind.VAR, Kind.VARS):
        if not isinstance(value, str):
            raise TypeError(value)
        return value
    return value if kind in (Kind.SCALAR, Kind.SCALARS) else float(value)


# -- to a program ---------------------------------------------------------------------------------


def build(message: Message, program: _Program) -> _Program:
    """Give a new program the blocks that a message describes, and return it."""
    described = message.get("blocks", [])
    if not described:
        raise _Wrong("it has no block")
    program.blocks = [
        _build_block(program, position, block) for position, block in enumerate(described)
    ]
    for block, description in zip(program.blocks, described, strict=True):
        for variable in description.get("vars", ()):
            _build_variable(block, variable)
        for op in description.get("ops", ()):
            _build_op(block, op)
    program.file_fields = {k: v for k, v in message.items() if k != "blocks"}
    program.touch()
    return program


def _build_block(program: ProgramBlocks, position: int, message: Message) -> Block:
    idx, parent = message["idx"], message["parent_idx"]
    if idx != position or not -1 <= parent < max(idx, 0):
        raise _Wrong(f"block {position} has the number {idx} and the parent {parent}")
    block = Block(program, idx, parent)
    block.forward_block_idx = message.get("forward_block_idx", -1)
    block.from_file = True
    modelled = ("idx", "parent_idx", "vars", "ops")
    block.file_fields = {k: v for k, v in message.items() if k not in modelled}
    return block


def _var_type(number: int, name: str) -> VarType:
    if number not in _TYPES:
        raise _Wrong(f"variable {name!r} has the type {number}, which there is not")
    return _TYPES[number]


def _build_variable(block: Block, message: Message) -> None:
    name, type_fields = message["name"], message["type"]
    kind = _var_type(type_fields["type"], name)
    field = _DESCRIBED.get(kind, "")
    described = type_fields.get(field)
    settings: dict[str, Any] = {"name": name, "type": kind}
    if described is not None:
        tensor = described["tensor"] if field in _LEVELS else described
        settings["shape"] = tensor.get("dims", [])
        if "data_type" in tensor:
            settings["dtype"] = _var_type(tensor["data_type"], name)
        settings["lod_level"] = described.get("lod_level", 0)
    settings["persistable"] = message.get("persistable", False)
    settings["need_check_feed"] = message.get("need_check_feed", False)
    settings["stop_gradient"] = message.get("stop_gradient", False)
    if message.get("is_parameter") and settings.get("shape") and min(settings["shape"]) >= 0:
        variable: Variable = Parameter(block, **settings)
    else:
        variable = Variable(block, **settings)
    variable.file_fields = message
    block.vars[name] = variable


def _build_op(block: Block, message: Message) -> None:
    attrs: dict[str, Any] = {}
    kinds: dict[str, int] = {}
    for attr in message.get("attrs", ()):
        name = attr["name"]
        try:
            kind = Kind(attr["type"])
        except ValueError:
            raise _Wrong(
                f"{message['type']}: attribute {name!r} has no kind {attr['type']}"
            ) from None
        kinds[name] = int(kind)
        attrs[name] = _value(block.program, message["type"], name, kind, attr)
    op = Operator.loaded(
        block,
        message["type"],
        _slots(message.get("inputs", ())),
        _slots(message.get("outputs", ())),
        attrs,
        kinds,
    )
    modelled = ("type", "inputs", "outputs", "attrs")
    op.file_fields = {k: v for k, v in message.items() if k not in modelled}
    block.ops.append(op)
    for name in op.output_arg_names:
        if name in block.vars:
            block.vars[name].op = op


def _slots(messages: Iterable[Message]) -> dict[str, list[str]]:
    return {slot["parameter"]: list(slot.get("arguments", ())) for slot in messages}


def _value(program: ProgramBlocks, op_type: str, name: str, kind: Kind, attr: Message) -> Any:
    field = FIELDS[kind]
    value: Any
    if kind in LISTS:
        value = list(attr.get(field, ()))
    elif field in attr:
        value = attr[field]
    else:
        raise _Wrong(f"{op_type}: attribute {name!r} of kind {kind.name} has no value")
    if kind not in (Kind.BLOCK, Kind.BLOCKS):
        return value
    for number in value if kind is Kind.BLOCKS else (value,):
        if not 0 <= number < len(program.blocks):
            raise _Wrong(f"{op_type}: attribute {name!r} names block {number}, which there is not")
    if kind is Kind.BLOCK:
        return program.blocks[value]
    return [program.blocks[number] for number in value]
