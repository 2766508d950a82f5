"""Layers that are a function of tensors with its other arguments stored."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar

from ...graph.layers.arguments import TENSORS
from ...strategies.errors import InvalidType
from .layers import Layer

_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)


class DimensionedLayer(Layer):
    """Layers that differ in their number of dimensions ``_dims``, and in the default of ``data_format``."""

    _dims: ClassVar[int]

    def __init_subclass__(cls, data_format: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if data_format is None:
            return
        cls._dims = len(data_format) - 2
        construct: Any = cls.__init__
        signature = inspect.signature(construct)
        parameters = [
            parameter.replace(default=data_format) if parameter.name == "data_format" else parameter
            for parameter in signature.parameters.values()
        ]

        @wraps(construct)
        def __init__(self: Layer, *args: Any, **kwargs: Any) -> None:
            kwargs = _bound(cls, signature, self, args, kwargs)
            construct(**kwargs)

        signature = signature.replace(parameters=parameters)
        __init__.__signature__ = signature  # type: ignore[attr-defined]
        cls.__init__ = __init__  # type: ignore[method-assign]


def _bound(
    cls: type, signature: inspect.Signature, self: Layer, args: Any, kwargs: Any
) -> dict[str, Any]:
    """Return a constructor's arguments by name.

    Raises:
        InvalidType: they do not fit its signature.
    """
    try:
        bound = signature.bind(self, *args, **kwargs)
    except TypeError as error:
        raise InvalidType(f"{cls.__name__}: {error}.") from None
    bound.apply_defaults()
    return bound.arguments


class FunctionLayer(Layer):
    """Calls ``of`` with tensors and with the arguments that the constructor took, as attributes.

    A subclass gets its constructor from the function's signature: all parameters but tensors, ``training`` (the
    layer's), and those that ``without`` names. ``shown`` names the attributes that ``repr`` tells; None is all.
    """

    _stored: ClassVar[tuple[str, ...]]
    _shown: ClassVar[tuple[str, ...] | None]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def __init_subclass__(
        cls,
        of: Callable[..., Any] | None = None,
        without: tuple[str, ...] = (),
        shown: tuple[str, ...] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        if of is None:  # a subclass of a user's
            return
        parameters = list(inspect.signature(of).parameters.values())
        tensors = [
            parameter
            for parameter in parameters
            if parameter.annotation in TENSORS and parameter.default is parameter.empty
        ]
        left_out = {"training", *without, *(parameter.name for parameter in tensors)}
        fields = [parameter for parameter in parameters if parameter.name not in left_out]
        signature = inspect.Signature([_SELF, *fields], return_annotation=None)
        given_training = any(parameter.name == "training" for parameter in parameters)

        def __init__(self: FunctionLayer, *args: Any, **kwargs: Any) -> None:
            arguments = _bound(cls, signature, self, args, kwargs)
            Layer.__init__(self)
            for name in cls._stored:
                setattr(self, name, arguments[name])

        def forward(self: FunctionLayer, *inputs: Any, **named: Any) -> Any:
            fields = {name: getattr(self, name) for name in cls._stored}
            if given_training:
                fields["training"] = self.training
            return of(*inputs, **named, **fields)

        __init__.__signature__ = signature  # type: ignore[attr-defined]
        forward.__signature__ = inspect.Signature([_SELF, *tensors])  # type: ignore[attr-defined]
        about = (of.__doc__ or "").partition("\n")[0]
        __init__.__doc__ = f"Store the arguments of ``nn.functional.{of.__name__}``."
        forward.__doc__ = about
        if cls.__doc__ is None:
            cls.__doc__ = f"Apply ``nn.functional.{of.__name__}``: {about}"
        cls._stored, cls._shown = tuple(parameter.name for parameter in fields), shown
        cls.__init__, cls.forward = __init__, forward  # type: ignore[assignment, method-assign]

    def extra_repr(self) -> str:
        """Return the arguments that matter."""
        names = self._stored if self._shown is None else self._shown
        settings = [
            f"{name}={getattr(self, name)}"
            for name in names
            if name != "name" or (self._shown is None and self.name)
        ]
        return ", ".join(settings)
