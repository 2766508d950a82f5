"""Containers of layers and of parameters."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any

from ...functions.creation import assign
from ...graph.program.variable import Parameter, Variable
from ...names import publish_definitions
from ...strategies.errors import InvalidArgument, InvalidValue, require_type
from .layers import Layer


class _Sequence(Layer):
    """Layers in an order, under the names 0, 1, and so on."""

    def __len__(self) -> int:
        return len(self._sub_layers)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._sub_layers.values())

    def _index(self, index: int) -> int:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range: there are {len(self)} layers.")
        return index % len(self)

    def _key(self, index: Any) -> str:
        return index if isinstance(index, str) else [*self._sub_layers][self._index(index)]

    def __setitem__(self, index: Any, layer: Layer) -> None:
        self.add_sublayer(self._key(index), layer)

    def append(self, layer: Layer) -> Any:
        """Add a layer at the end, and return the container."""
        self.add_sublayer(str(len(self)), layer)
        return self

    def extend(self, layers: Iterable[Layer]) -> Any:
        """Add layers at the end, and return the container."""
        for layer in layers:
            self.append(layer)
        return self

    def insert(self, index: int, layer: Layer) -> Any:
        """Put a layer before the one that has the index, and return the container.

        Raises:
            IndexError: the index is outside the container.
        """
        if not -len(self) <= index <= len(self):
            raise IndexError(f"index {index} is out of range: there are {len(self)} layers.")
        layers = list(self)
        layers.insert(index, layer)
        for position, item in enumerate(layers):
            self.add_sublayer(str(position), item)
        return self


class Sequential(_Sequence):
    """Layers that feed one another: given one by one, as (name, layer) pairs, or as an OrderedDict."""

    def __init__(self, *layers: Any) -> None:
        super().__init__()
        pairs: Iterable[Any] = ((str(i), layer) for i, layer in enumerate(layers))
        if len(layers) == 1 and isinstance(layers[0], OrderedDict):
            pairs = layers[0].items()
        elif layers and isinstance(layers[0], (list, tuple)):
            pairs = layers
        for name, layer in pairs:
            self.add_sublayer(name, layer)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(*list(self)[index])
        return self._sub_layers[self._key(index)]

    def __delitem__(self, index: Any) -> None:
        del self._sub_layers[self._key(index)]

    def forward(self, input: Any) -> Any:
        """Apply the layers in order."""
        for layer in self:
            input = layer(input)
        return input


class LayerList(_Sequence):
    """A list of layers."""

    def __init__(self, sublayers: Iterable[Layer] | None = None) -> None:
        super().__init__()
        self.extend(sublayers or ())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return self._sub_layers[self._key(index)]

    def __delitem__(self, index: Any) -> None:
        layers = list(self)
        del layers[index if isinstance(index, slice) else self._index(index)]
        self._sub_layers.clear()
        self.extend(layers)

    def __iadd__(self, layers: Iterable[Layer]) -> LayerList:
        self.extend(layers)
        return self

    def __add__(self, layers: Iterable[Layer]) -> LayerList:
        return LayerList([*self, *layers])

    def pop(self, index: Any = -1) -> Any:
        """Take a layer out and return it."""
        layer = self[index]
        del self[index]
        return layer


def _pairs(items: Any, kind: str) -> Iterator[tuple[str, Any]]:
    """Yield names and values of a mapping, of another container, or of pairs.

    Raises:
        InvalidArgument: it is none of these.
        InvalidValue: an element is no pair.
    """
    if isinstance(items, Mapping) or hasattr(items, "items"):
        items = items.items()
    require_type(items, Iterable, f"{kind} takes a mapping or (name, value) pairs", InvalidArgument)
    for pair in items:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise InvalidValue(f"{kind} takes (name, value) pairs, got {pair!r}.")
        yield pair[0], pair[1]


class LayerDict(Layer):
    """Layers by name, in the order in which they came."""

    def __init__(self, sublayers: Any = None) -> None:
        super().__init__()
        self.update(sublayers if sublayers is not None else ())

    def update(self, sublayers: Any) -> None:
        """Add the layers of a mapping, of another LayerDict, or of (name, layer) pairs."""
        for name, layer in _pairs(sublayers, "LayerDict"):
            self.add_sublayer(name, layer)

    def __getitem__(self, key: str) -> Any:
        return self._sub_layers[key]

    def __setitem__(self, key: str, sublayer: Layer) -> None:
        self.add_sublayer(key, sublayer)

    def __delitem__(self, key: str) -> None:
        del self._sub_layers[key]

    def __len__(self) -> int:
        return len(self._sub_layers)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sub_layers)

    def __contains__(self, key: object) -> bool:
        return key in self._sub_layers

    def clear(self) -> None:
        """Take all layers out."""
        self._sub_layers.clear()

    def pop(self, key: str) -> Any:
        """Take a layer out and return it."""
        return self._sub_layers.pop(key)

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._sub_layers.keys()

    def values(self) -> ValuesView[Layer | None]:
        """Return the layers."""
        return self._sub_layers.values()

    def items(self) -> ItemsView[str, Layer | None]:
        """Return names and layers."""
        return self._sub_layers.items()


class ParameterDict(Layer):
    """Parameters by name, in the order in which they came."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self.update(parameters if parameters is not None else ())

    def update(self, parameters: Any) -> None:
        """Add the parameters of a mapping, of another ParameterDict, or of (name, parameter) pairs."""
        for name, parameter in _pairs(parameters, "ParameterDict"):
            self[name] = parameter

    def __getitem__(self, key: str) -> Any:
        return self._parameters[key]

    def __setitem__(self, key: str, parameter: Parameter) -> None:
        """Add a parameter.

        Raises:
            InvalidArgument: it is no Parameter.
        """
        require_type(parameter, Parameter, "ParameterDict holds Parameters", InvalidArgument)
        self.add_parameter(key, parameter)

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def items(self) -> ItemsView[str, Any]:
        """Return names and parameters."""
        return self._parameters.items()


class ParameterList(Layer):
    """A list of parameters."""

    def __init__(self, parameters: Iterable[Parameter] | None = None) -> None:
        super().__init__()
        for parameter in parameters or ():
            self.append(parameter)

    def append(self, parameter: Parameter) -> ParameterList:
        """Add a parameter at the end, and return the list.

        Raises:
            InvalidArgument: it is no Parameter.
        """
        require_type(parameter, Parameter, "ParameterList holds Parameters", InvalidArgument)
        self.add_parameter(str(len(self)), parameter)
        return self

    def __getitem__(self, index: int) -> Any:
        return self._parameters[str(index)]

    def __setitem__(self, index: int, parameter: Variable) -> None:
        """Append an op that copies a value to the parameter.

        Raises:
            InvalidType: it is no Variable.
        """
        require_type(parameter, Variable, "ParameterList takes a Variable")
        assign(parameter, self[index])

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parameters.values())


publish_definitions(__name__)
