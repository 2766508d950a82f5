"""InputSpec: shape, element type and name of a feed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph.layers.arguments import integer
from ..graph.program.variable import Variable
from ..strategies.errors import InvalidType, InvalidValue, require_type
from ..strategies.types import VarType, to_var_type


class InputSpec:
    """The shape, element type and name of a feed; None and -1 in ``shape`` are sizes that are not known.

    Raises:
        InvalidType: ``shape`` or ``name`` is of another type.
        InvalidValue: a size is negative, or ``dtype`` no element type.
    """

    def __init__(
        self,
        shape: Sequence[int | None],
        dtype: Any = "float32",
        name: str | None = None,
        stop_gradient: bool = False,
    ) -> None:
        require_type(shape, list | tuple, "InputSpec: shape must be a list or a tuple")
        require_type(name, str | None, "InputSpec: name must be a str or None")
        self.shape = tuple(_size(size) for size in shape)
        self.dtype: VarType = to_var_type(dtype)
        self.name = name
        self.stop_gradient = stop_gradient

    @classmethod
    def from_tensor(cls, tensor: Variable, name: str | None = None) -> InputSpec:
        """Return the spec of a Variable.

        Raises:
            InvalidType: ``tensor`` is none, or its shape is not known.
        """
        if not isinstance(tensor, Variable) or tensor.shape is None or tensor.dtype is None:
            raise InvalidType(
                f"InputSpec.from_tensor takes a Variable with a shape, got {tensor!r}."
            )
        return cls(tensor.shape, tensor.dtype, name or tensor.name)

    @classmethod
    def from_numpy(cls, ndarray: np.ndarray, name: str | None = None) -> InputSpec:
        """Return the spec of an array."""
        return cls(ndarray.shape, ndarray.dtype, name)

    def batch(self, batch_size: int | Sequence[int]) -> InputSpec:
        """Put a number of rows in front of the shape.

        Raises:
            InvalidValue: ``batch_size`` is not one number.
        """
        if isinstance(batch_size, (list, tuple)):
            if len(batch_size) != 1:
                raise InvalidValue(f"InputSpec.batch takes one number, got {batch_size!r}.")
            batch_size = batch_size[0]
        rows = integer(batch_size, "batch_size", "InputSpec.batch")
        self.shape = (_size(rows), *self.shape)
        return self

    def unbatch(self) -> InputSpec:
        """Take the first size away.

        Raises:
            InvalidValue: there is none.
        """
        if not self.shape:
            raise InvalidValue("InputSpec.unbatch: the shape is empty.")
        self.shape = self.shape[1:]
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InputSpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return self.shape, self.dtype, self.name, self.stop_gradient

    def __repr__(self) -> str:
        return (
            f"InputSpec(shape={self.shape}, dtype={self.dtype.name}, name={self.name}, "
            f"stop_gradient={self.stop_gradient})"
        )


def _size(size: Any) -> int:
    if size is None:
        return -1
    if integer(size, "a size of shape", "InputSpec") < -1:
        raise InvalidValue(f"InputSpec: a size cannot be {size}.")
    return int(size)
