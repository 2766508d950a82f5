"""Select the slots and attributes of a loaded op that kernels take; refuse what is not built here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....strategies.errors import Unsupported
from ...ops.registry import MESSAGE_OPS, declaration
from ...ops.trainer_collective import RING_TYPES
from ..operator import Operator
from ..role import STAMPED
from .op_table import entry_of

# They name the feeds and fetches, or end the life of variables, and compute nothing.
_MODEL_ONLY = ("feed", "fetch", "delete_var")
# Which library computes an op, and how it is tuned, changes no value beyond rounding.
_TUNING = {
    "use_cudnn",
    "use_mkldnn",
    "use_onednn",
    "use_quantizer",
    "mkldnn_data_type",
    "onednn_data_type",
    "workspace_size_MB",
    "exhaustive_search",
    "force_cpu",
    "is_test",
    "op_version",
    "with_quant_attr",
    "use_global_stats_mkldnn",
}


def computed_ops(ops: Sequence[Operator]) -> list[Operator]:
    """Return the ops of a block that compute something.

    Raises:
        Unsupported: op types that are not built; the text names each, and the line that built its first op.
    """
    computed = [op for op in ops if op.type not in _MODEL_ONLY]
    unbuilt: dict[str, str] = {}
    for op in computed:
        if declaration(op.type) is None or (op.type in MESSAGE_OPS and op.type not in RING_TYPES):
            unbuilt.setdefault(op.type, op.where)
    if unbuilt:
        names = ", ".join(
            f"{kind!r} ({where})" if where else repr(kind) for kind, where in unbuilt.items()
        )
        raise Unsupported(
            f"the program has {len(unbuilt)} operator(s) that are not built: {names}. It can be loaded, looked "
            f"at, pruned and saved, but not run with them."
        )
    return computed


def computed_attributes(op: Operator, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of an op that a kernel reads.

    Raises:
        Unsupported: an attribute or input that is not built is in use.
    """
    if op.file_kinds is None:
        return {name: value for name, value in values.items() if name not in STAMPED}
    own_defaults = op.declaration.attrs
    entry = entry_of(op.type)
    paddle_defaults = {} if entry is None else entry.attrs
    for name, value in values.items():
        if name in own_defaults or name in STAMPED or name in _TUNING:
            continue
        usual = paddle_defaults[name][1] if name in paddle_defaults else None
        if value != usual and not (usual is None and _says_nothing(value)):
            raise Unsupported(
                f"{op.type}: the attribute {name}={value!r} of the loaded program is not built. {op.where}"
            )
    slots = {slot.name for slot in op.declaration.input_slots}
    for slot, names in op.inputs.items():
        if names and slot not in slots:
            raise Unsupported(
                f"{op.type}: the input {slot!r} of the loaded program is not built. {op.where}"
            )
    attrs = {name: values.get(name, default) for name, default in own_defaults.items()}
    for name, default in own_defaults.items():
        several = isinstance(default, (list, tuple))
        if default is not None and isinstance(attrs[name], (list, tuple)) != several:
            raise Unsupported(
                f"{op.type}: the attribute {name}={attrs[name]!r} of the loaded program is no "
                f"{type(default).__name__}. {op.where}"
            )
    return attrs


def _says_nothing(value: Any) -> bool:
    return value is None or value in (0, 0.0, False, "", -1, 1, 1.0) or value == []
