"""The base of transforms, keys of inputs, and transforms one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...strategies.errors import InvalidArgument, InvalidValue, Unsupported, require_type


def check(condition: bool, message: str) -> None:
    """Raise InvalidArgument with a message unless a condition holds."""
    if not condition:
        raise InvalidArgument(message)


def is_number(value: Any) -> bool:
    """Return whether a value is a number of Python or NumPy."""
    return isinstance(value, int | float | np.number)


class Compose:
    """Apply transforms one after another; an error names the one that failed."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, data: Any) -> Any:
        """Return what the last transform gives."""
        for transform in self.transforms:
            try:
                data = transform(data)
            except Exception as error:
                error.add_note(f"raised by transform {transform} of Compose")
                raise
        return data

    def __repr__(self) -> str:
        lines = "".join(f"\n    {transform}" for transform in self.transforms)
        return f"{type(self).__name__}({lines}\n)"


class BaseTransform:
    """Base of transforms: a subclass defines ``_apply_image``, and ``_apply_<key>`` for other kinds of inputs.

    ``_get_params(inputs)``, called once for all inputs, gives what these methods find in ``self.params``.

    Args:
        keys: kind of each input: "image" (the default for the first), "coords" [N, 2], "boxes" [N, 4], "mask",
            or any other that has a method. Inputs without a key are returned as they are.

    Raises:
        InvalidValue: ``keys`` is no sequence.
        Unsupported: no method for a key.
    """

    def __init__(self, keys: Sequence[str] | None = None) -> None:
        require_type(keys, Sequence | None, "keys must be a sequence", InvalidValue)
        self.keys = ("image",) if keys is None else keys
        for key in self.keys:
            if self._get_apply(key) is None:
                raise Unsupported(f"{type(self).__name__} has no _apply_{key} for the key {key!r}.")
        self.params: Any = None

    def __call__(self, inputs: Any) -> Any:
        """Return an input transformed, or a tuple of them."""
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        self.params = self._get_params(inputs)
        keyed = zip(inputs, self.keys, strict=False)
        outputs = [getattr(self, f"_apply_{key}")(value) for value, key in keyed]
        outputs += inputs[len(outputs) :]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _get_apply(self, key: str) -> Callable[[Any], Any] | None:
        return getattr(self, f"_apply_{key}", None)

    def _get_params(self, inputs: tuple[Any, ...]) -> Any:
        return None

    def _refuse(self, kind: str) -> Any:
        raise Unsupported(f"{type(self).__name__} does not transform {kind}.")

    def _apply_image(self, image: Any) -> Any:
        return self._refuse("images")

    def _apply_boxes(self, boxes: Any) -> Any:
        return self._refuse("boxes")

    def _apply_mask(self, mask: Any) -> Any:
        return self._refuse("masks")

    def _apply_coords(self, coords: Any) -> Any:
        return self._refuse("coordinates")
