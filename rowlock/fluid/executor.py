"""``fluid.executor``: executors, scopes, and checks of what is fed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..executor.dataset_runs import FetchHandler
from ..executor.executor import Executor
from ..executor.feed.scope import Scope, global_scope, scope_guard
from ..graph.program.block import Block
from ..graph.program.variable import Variable
from ..names import publish_listed
from ..strategies.errors import InvalidValue, NotFound
from ..strategies.types import to_var_type

__all__ = [
    "Executor",
    "FetchHandler",
    "as_numpy",
    "check_feed_shape_type",
    "dimension_is_compatible_with",
    "dtype_is_compatible_with",
    "global_scope",
    "has_feed_operators",
    "has_fetch_operators",
    "scope_guard",
]


def _fetch_var(name: Any, scope: Scope | None = None, return_numpy: bool = True) -> Any:
    """Return the tensor of a variable, a name or a Variable, or its elements as an array.

    Raises:
        NotFound: the scope (None: the global one) holds no such variable.
    """
    name = name.name if isinstance(name, Variable) else name
    variable = (scope or global_scope()).find_var(name)
    if variable is None:
        raise NotFound(
            f"the scope holds no variable {name!r}: only persistable ones live there, once a program ran."
        )
    tensor = variable.get_tensor()
    return np.asarray(tensor) if return_numpy else tensor


def as_numpy(tensor: Any) -> Any:
    """Return a tensor that was fetched as an array, a list of them as a list."""
    if isinstance(tensor, (list, tuple)):
        return [as_numpy(item) for item in tensor]
    return np.asarray(tensor)


def dimension_is_compatible_with(first: Sequence[int], second: Sequence[int]) -> bool:
    """Tell whether two shapes agree, where negative sizes agree with all."""
    return len(first) == len(second) and all(
        min(a, b) < 0 or a == b for a, b in zip(first, second, strict=True)
    )


def dtype_is_compatible_with(first: Any, second: Any) -> bool:
    """Tell whether two dtypes, by whatever name, are one."""
    return to_var_type(first) == to_var_type(second)


def check_feed_shape_type(var: Variable, feed: Any, num_places: int = 1) -> bool:
    """Return True if a variable takes an array, all places' together.

    Raises:
        InvalidValue: its shape or its dtype is another.
    """
    array = np.asarray(feed)
    if not var.need_check_feed:
        return True
    shape = list(array.shape)
    if shape and var.shape and var.shape[0] >= 0:
        shape[0] //= num_places
    if not dimension_is_compatible_with(shape, var.shape or ()):
        raise InvalidValue(
            f"{var.name!r} has the shape {list(var.shape or ())}, and is fed {list(array.shape)}."
        )
    if not dtype_is_compatible_with(array.dtype, var.dtype):
        raise InvalidValue(f"{var.name!r} is {var.dtype!r}, and is fed {array.dtype}.")
    return True


def _has(block: Block, op_type: str, targets: dict[str, Any] | Sequence[Any]) -> bool:
    ops = [op for op in block.ops if op.type == op_type]
    names = {getattr(target, "name", target) for target in targets}
    for op in ops:
        variables = op.output_arg_names if op_type == "feed" else op.input_arg_names
        if not names.issuperset(variables):
            raise InvalidValue(
                f"The program has {op_type} ops of {variables}, not only of {sorted(names)}."
            )
    return bool(ops)


def has_feed_operators(block: Block, feed_targets: Any, feed_holder_name: str) -> bool:
    """Tell whether a block has ``feed`` ops, as loaded inference programs do.

    Raises:
        InvalidValue: one of them is of no target.
    """
    return _has(block, "feed", feed_targets)


def has_fetch_operators(block: Block, fetch_targets: Any, fetch_holder_name: str) -> bool:
    """Tell whether a block has ``fetch`` ops, as loaded inference programs do.

    Raises:
        InvalidValue: one of them is of no target.
    """
    return _has(block, "fetch", fetch_targets)


publish_listed(__name__)
