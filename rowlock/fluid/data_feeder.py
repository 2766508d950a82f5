"""``fluid.data_feeder``: samples to arrays, and checks of layers' arguments."""

from collections.abc import Sequence
from typing import Any

from ..executor.loading.data_feeder import DataFeeder
from ..graph.program.variable import Variable
from ..names import publish_listed
from ..strategies.errors import InvalidType
from ..strategies.types import to_numpy, to_var_type

__all__ = ["DataFeeder", "check_dtype", "check_type", "check_variable_and_dtype", "convert_dtype"]


def convert_dtype(dtype: Any) -> str:
    """Return a dtype's name, such as ``"float32"``, from a ``VarType``, a NumPy dtype or a name.

    Raises:
        InvalidValue: a tensor cannot have this dtype.
    """
    return to_numpy(to_var_type(dtype)).name


def check_type(
    input: Any, input_name: str, expected_type: Any, op_name: str, extra_message: str = ""
) -> None:
    """Raise InvalidType (a TypeError) unless ``input`` is of an expected type."""
    if not isinstance(input, expected_type):
        raise InvalidType(
            f"{op_name}: {input_name} must be of type {expected_type}, got {type(input)}. "
            f"{extra_message}".rstrip()
        )


def check_dtype(
    input_dtype: Any,
    input_name: str,
    expected_dtype: str | Sequence[str],
    op_name: str,
    extra_message: str = "",
) -> None:
    """Raise InvalidType (a TypeError) unless a dtype is one of the expected."""
    dtype = convert_dtype(input_dtype)
    expected = [expected_dtype] if isinstance(expected_dtype, str) else list(expected_dtype)
    if dtype not in expected:
        raise InvalidType(
            f"{op_name}: the dtype of {input_name} must be one of {', '.join(expected)}, got {dtype}. "
            f"{extra_message}".rstrip()
        )


def check_variable_and_dtype(
    input: Any,
    input_name: str,
    expected_dtype: str | Sequence[str],
    op_name: str,
    extra_message: str = "",
) -> None:
    """Raise InvalidType (a TypeError) unless ``input`` is a Variable of an expected dtype."""
    check_type(input, input_name, Variable, op_name, extra_message)
    check_dtype(input.dtype, input_name, expected_dtype, op_name, extra_message)


publish_listed(__name__)
