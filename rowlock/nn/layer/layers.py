"""``Layer``: parameters, buffers and layers inside it, under the names of attributes."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ...executor.feed.scope import global_scope
from ...functions.creation import assign
from ...graph.layers.arguments import integer
from ...graph.layers.helper import LayerHelper
from ...graph.program import unique_name
from ...graph.program.program import default_startup_program
from ...graph.program.variable import Parameter, Variable
from ...graph.program.where import warn_user
from ...strategies.errors import (
    InvalidArgument,
    InvalidState,
    InvalidType,
    InvalidValue,
    Unsupported,
    nearest,
    require_type,
)
from ...strategies.types import VarType, to_numpy, to_var_type

_REGISTRIES = ("_parameters", "_sub_layers", "_buffers")
_INIT = "{}.__init__() must call super().__init__() before it sets attributes."


class _Hook(NamedTuple):
    call: Callable[..., Any]
    with_kwargs: bool
    always_call: bool = False


class HookRemoveHelper:
    """Removes one hook."""

    _ids = count()

    def __init__(self, hooks: OrderedDict[int, Any]) -> None:
        self._hooks, self._hook_id = hooks, next(self._ids)

    def remove(self) -> None:
        """Remove the hook, if it is still there."""
        self._hooks.pop(self._hook_id, None)


def _add(hooks: OrderedDict[int, Any], hook: Any, prepend: bool = False) -> HookRemoveHelper:
    helper = HookRemoveHelper(hooks)
    hooks[helper._hook_id] = hook
    hooks.move_to_end(helper._hook_id, last=not prepend)
    return helper


def _refuse(name: str, cure: str) -> Callable[..., NoReturn]:
    def imperative(self: Layer, *args: Any, **kwargs: Any) -> NoReturn:
        raise Unsupported(
            f"{type(self).__name__}.{name}() is of the imperative (dygraph) mode, and Rowlock is static-graph: "
            f"{cure}."
        )

    imperative.__name__ = name
    imperative.__doc__ = f"Refuse: Rowlock is static-graph: {cure}."
    return imperative


class Layer:
    """Part of a network: ``forward`` appends its ops to the default main program, and may be called again.

    Parameters, layers and persistable variables that are assigned to attributes register themselves. Values
    live in the global scope: run the startup program before they are read.

    Args:
        name_scope: what parameters are named after; default: the class's name in snake case.
        dtype: element type of parameters created without one.
    """

    training: bool

    def __init__(self, name_scope: str | None = None, dtype: Any = "float32") -> None:
        self.training = True
        if name_scope is None:
            words = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", type(self).__name__)
            name_scope = re.sub(r"([a-z])([A-Z])", r"\1_\2", words).lower()
        self._full_name = unique_name.generate(name_scope)
        self._helper = LayerHelper(self._full_name, self._full_name)
        self._dtype = dtype
        self._parameters: OrderedDict[str, Parameter | None] = OrderedDict()
        self._buffers: OrderedDict[str, Variable | None] = OrderedDict()
        self._non_persistable_buffer_names_set: set[str] = set()
        self._sub_layers: OrderedDict[str, Layer | None] = OrderedDict()
        self._forward_pre_hooks: OrderedDict[int, _Hook] = OrderedDict()
        self._forward_post_hooks: OrderedDict[int, _Hook] = OrderedDict()
        self._state_dict_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()

    def full_name(self) -> str:
        """Return the name that parameters begin with, such as ``linear_0``."""
        return self._full_name

    # -- calling ----------------------------------------------------------------------------------

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Append the layer's ops and return their result.

        Raises:
            Unsupported: the class defines no ``forward``.
        """
        raise Unsupported(
            f"{type(self).__name__} defines no forward(): say there what it computes."
        )

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        """Run the hooks around :meth:`forward`, and return its result or what a hook returned for it."""
        outputs = None
        waiting = OrderedDict(self._forward_post_hooks)
        try:
            for hook in list(self._forward_pre_hooks.values()):
                inputs, kwargs = self._before(hook, inputs, kwargs)
            outputs = self.forward(*inputs, **kwargs)
            for key, hook in list(waiting.items()):
                del waiting[key]
                outputs = self._after(hook, inputs, kwargs, outputs)
        except Exception:
            for hook in waiting.values():
                if hook.always_call:
                    outputs = self._after(hook, inputs, kwargs, outputs)
            raise
        return outputs

    def _before(self, hook: _Hook, inputs: Any, kwargs: Any) -> tuple[Any, Any]:
        if not hook.with_kwargs:
            result = hook.call(self, inputs)
            if result is None:
                return inputs, kwargs
            return result if isinstance(result, tuple) else (result,), kwargs
        result = hook.call(self, inputs, kwargs)
        if result is not None and not (isinstance(result, tuple) and len(result) == 2):
            raise InvalidState(
                f"a forward pre-hook with kwargs returns None or (inputs, kwargs), got {result!r}."
            )
        return result or (inputs, kwargs)

    def _after(self, hook: _Hook, inputs: Any, kwargs: Any, outputs: Any) -> Any:
        arguments = (inputs, kwargs) if hook.with_kwargs else (inputs,)
        result = hook.call(self, *arguments, outputs)
        return outputs if result is None else result

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookRemoveHelper:
        """Call ``hook(layer, inputs)`` before each forward; what it returns replaces the inputs."""
        return _add(self._forward_pre_hooks, _Hook(hook, with_kwargs), prepend)

    def register_forward_post_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> HookRemoveHelper:
        """Call ``hook(layer, inputs, outputs)`` after each forward; what it returns replaces the outputs.

        ``always_call``: also when forward raised, with None as outputs.
        """
        return _add(self._forward_post_hooks, _Hook(hook, with_kwargs, always_call), prepend)

    def train(self, mode: bool = True) -> Layer:
        """Have what is built from now on drop out and take statistics from the batch.

        Raises:
            InvalidValue: ``mode`` is no bool.
        """
        require_type(mode, bool, "train() takes True or False", InvalidValue)
        for layer in self.sublayers(include_self=True):
            layer.training = mode
        return self

    def eval(self) -> Layer:
        """Have what is built from now on compute as when testing."""
        return self.train(False)

    # -- parameters, buffers, layers --------------------------------------------------------------

    def create_parameter(
        self,
        shape: Any,
        attr: Any = None,
        dtype: Any = None,
        is_bias: bool = False,
        default_initializer: Any = None,
        device: Any = None,
    ) -> Any:
        """Create a parameter in both programs, or return None if ``attr`` is False.

        Without an initializer, weights are Xavier uniform and biases zero. ``device`` is the executor's place.
        """
        require_type(shape, list | tuple, "create_parameter: shape must be a list of ints")
        sizes = [integer(size, "a size of shape", type(self).__name__) for size in shape]
        return self._helper.create_parameter(
            attr or None if attr is not False else False,
            sizes,
            self._dtype or "float32" if dtype is None else dtype,
            is_bias,
            default_initializer,
        )

    def create_variable(
        self, name: str | None = None, persistable: bool | None = None, dtype: Any = None
    ) -> Variable:
        """Create a variable in the main program, named after the layer."""
        full = f"{self._full_name}.{name or ''}" if name else None
        return self._helper.block.create_var(
            name=full or unique_name.generate(f"{self._full_name}._generated_var"),
            persistable=bool(persistable),
            dtype=dtype or self._dtype,
        )

    create_tensor = create_variable

    def add_parameter(self, name: str, parameter: Parameter | None) -> Parameter | None:
        """Register a parameter, to be read as an attribute.

        Raises:
            InvalidType: ``name`` is no str, or ``parameter`` no Parameter.
            KeyError: the name is empty, has a dot, or is another attribute's.
        """
        self._check_name(name, "parameter", self._parameters)
        require_type(parameter, Parameter | None, "add_parameter takes a Parameter")
        self._parameters[name] = parameter
        return parameter

    def add_sublayer(self, name: str, sublayer: Layer | None) -> Layer | None:
        """Register a layer, to be read as an attribute.

        Raises:
            InvalidArgument: ``sublayer`` is no Layer.
        """
        require_type(
            sublayer, Layer | None, f"{type(self).__name__}: a layer is needed", InvalidArgument
        )
        self._sub_layers[str(name)] = sublayer
        return sublayer

    def register_buffer(self, name: str, tensor: Variable | None, persistable: bool = True) -> None:
        """Register a variable that is no parameter; a persistable one is in ``state_dict``.

        What the program computes anew in each step, such as a constant, has no value to save: it is none.

        Raises:
            InvalidType: ``name`` is no str, or ``tensor`` no Variable.
            KeyError: the name is empty, has a dot, or is another attribute's.
        """
        self._check_name(name, "buffer", self._buffers)
        require_type(tensor, Variable | None, "register_buffer takes a Variable")
        self._buffers[name] = tensor
        keep = persistable and (tensor is None or tensor.persistable)
        names = self._non_persistable_buffer_names_set
        (names.discard if keep else names.add)(name)

    def _check_name(self, name: Any, kind: str, own: Mapping[str, Any]) -> None:
        if "_parameters" not in vars(self):
            raise InvalidValue(_INIT.format(type(self).__name__))
        require_type(name, str, f"the name of a {kind} must be a str")
        if not name or "." in name:
            raise KeyError(f"the name of a {kind} cannot be empty or have a dot: {name!r}.")
        if name not in own and hasattr(self, name):
            raise KeyError(f"{type(self).__name__} has an attribute {name!r} already.")

    def named_sublayers(
        self,
        prefix: str = "",
        include_self: bool = False,
        layers_set: set[Layer] | None = None,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Layer]]:
        """Yield the layers inside and their names, outer ones first, each once."""
        seen = set() if layers_set is None else layers_set
        if include_self and self not in seen:
            if remove_duplicate:
                seen.add(self)
            yield prefix, self
        for name, layer in self._sub_layers.items():
            if layer is not None:
                inner = f"{prefix}.{name}" if prefix else name
                yield from layer.named_sublayers(inner, True, seen, remove_duplicate)

    def sublayers(self, include_self: bool = False) -> list[Layer]:
        """Return the layers inside, outer ones first."""
        return [layer for _, layer in self.named_sublayers(include_self=include_self)]

    def named_children(self) -> Iterator[tuple[str, Layer]]:
        """Yield the layers that are attributes of this one, each once."""
        children = {layer: name for name, layer in reversed(self._sub_layers.items())}
        for name, layer in self._sub_layers.items():
            if layer is not None and children[layer] == name:
                yield name, layer

    def children(self) -> Iterator[Layer]:
        """Yield the layers that are attributes of this one, each once."""
        return (layer for _, layer in self.named_children())

    def apply(self, fn: Callable[[Layer], Any]) -> Layer:
        """Call ``fn`` with each layer inside, inner ones first, and with this one."""
        for layer in self.children():
            layer.apply(fn)
        fn(self)
        return self

    def _named(
        self, registry: str, prefix: str, include_sublayers: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        layers: Iterable[tuple[str, Layer]] = [(prefix, self)]
        if include_sublayers:
            layers = self.named_sublayers(prefix, True, None, remove_duplicate)
        seen: set[Variable] = set()
        for path, layer in layers:
            for name, variable in getattr(layer, registry).items():
                if variable is not None and variable not in seen:
                    if remove_duplicate:
                        seen.add(variable)
                    yield f"{path}.{name}" if path else name, variable

    def named_parameters(
        self, prefix: str = "", include_sublayers: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Yield parameters by the path of attributes that leads to them, each once."""
        return self._named("_parameters", prefix, include_sublayers, remove_duplicate)

    def parameters(self, include_sublayers: bool = True) -> list[Parameter]:
        """Return the parameters, each once."""
        return [p for _, p in self.named_parameters(include_sublayers=include_sublayers)]

    def named_buffers(
        self, prefix: str = "", include_sublayers: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Variable]]:
        """Yield buffers by the path of attributes that leads to them, each once."""
        return self._named("_buffers", prefix, include_sublayers, remove_duplicate)

    def buffers(self, include_sublayers: bool = True) -> list[Variable]:
        """Return the buffers, each once."""
        return [b for _, b in self.named_buffers(include_sublayers=include_sublayers)]

    # -- attributes -------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        for registry in _REGISTRIES:
            if name in vars(self).get(registry, ()):
                return vars(self)[registry][name]
        kind = type(self).__name__
        if "_parameters" not in vars(self):
            raise AttributeError(f"{kind} has no attribute {name!r}: {_INIT.format(kind)}")
        raise AttributeError(f"{kind} has no attribute {name!r}.{nearest(name, dir(self))}")

    def __setattr__(self, name: str, value: Any) -> None:
        own = vars(self)
        registry = self._registry_of(name, value)
        if registry is None:
            object.__setattr__(self, name, value)
            return
        if registry not in own:
            raise InvalidValue(_INIT.format(type(self).__name__))
        if registry == "_buffers":
            before = own[registry].get(name)
            if before is not None and value is not None and before is not value:
                assign(value, before)  # the buffer stays the variable that state_dict names
                return
            if name not in own[registry]:
                self._non_persistable_buffer_names_set.add(name)
        for mapping in (own, *(own[other] for other in _REGISTRIES if other != registry)):
            mapping.pop(name, None)
        own[registry][name] = value

    def _registry_of(self, name: str, value: Any) -> str | None:
        """Return which registry an assignment is for.

        Raises:
            InvalidType: it would put something else in place of what is registered.
        """
        if isinstance(value, Parameter):
            return "_parameters"
        if isinstance(value, Layer):
            return "_sub_layers"
        for registry, kind in zip(_REGISTRIES, ("Parameter", "Layer", "Variable"), strict=True):
            if name in vars(self).get(registry, ()):
                if value is None or (registry == "_buffers" and isinstance(value, Variable)):
                    return registry
                raise InvalidType(
                    f"{type(self).__name__}.{name} is a {kind}: set another one or None, got {value!r}."
                )
        return "_buffers" if isinstance(value, Variable) and value.persistable else None

    def __delattr__(self, name: str) -> None:
        for registry in _REGISTRIES:
            if name in vars(self)[registry]:
                del vars(self)[registry][name]
                self._non_persistable_buffer_names_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        registered = [name for registry in _REGISTRIES for name in vars(self).get(registry, ())]
        return [*dir(type(self)), *vars(self), *registered]

    def __deepcopy__(self, memo: Any) -> Layer:
        raise Unsupported(
            f"{type(self).__name__} cannot be copied, for its parameters belong to a program: make another."
        )

    def extra_repr(self) -> str:
        """Return what stands in parentheses behind the class's name."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        inner = "".join(
            f"\n  ({name}): " + repr(layer).replace("\n", "\n  ")
            for name, layer in self._sub_layers.items()
        )
        if "\n" in extra:
            extra = "\n  " + extra.replace("\n", "\n  ") + ("" if inner else "\n")
        return f"{type(self).__name__}({extra}{inner}{chr(10) if inner else ''})"

    # -- values -----------------------------------------------------------------------------------

    def _state(self, prefix: str, include_sublayers: bool, every_buffer: bool) -> Iterator[Any]:
        for name, parameter in self._parameters.items():
            if parameter is not None:
                yield prefix + name, parameter
        for name, buffer in self._buffers.items():
            if buffer is not None and (
                every_buffer or name not in self._non_persistable_buffer_names_set
            ):
                yield prefix + name, buffer
        for name, layer in self._sub_layers.items() if include_sublayers else ():
            if layer is not None:
                yield from layer._state(f"{prefix}{name}.", True, every_buffer)

    def _state_dict(
        self, destination: Any, arguments: tuple[Any, ...], use_hook: bool
    ) -> dict[str, Variable]:
        state = OrderedDict() if destination is None else destination
        state.update(self._state(*arguments))
        for layer in reversed(self.sublayers(include_self=True)) if use_hook else ():
            for hook in layer._state_dict_hooks.values():
                result = hook(state)
                state = state if result is None else result
        return state

    def state_dict(
        self,
        destination: dict[str, Variable] | None = None,
        include_sublayers: bool = True,
        structured_name_prefix: str = "",
        use_hook: bool = True,
        keep_vars: bool = True,
    ) -> dict[str, Variable]:
        """Return parameters and persistable buffers by the path of attributes that leads to them.

        They are variables, as in Paddle's static programs; ``get_value()`` reads one in the global scope.
        """
        arguments = (structured_name_prefix, include_sublayers, False)
        return self._state_dict(destination, arguments, use_hook)

    def to_static_state_dict(
        self,
        destination: dict[str, Variable] | None = None,
        include_sublayers: bool = True,
        structured_name_prefix: str = "",
        use_hook: bool = True,
        keep_vars: bool = True,
    ) -> dict[str, Variable]:
        """Return what :meth:`state_dict` returns, and the other buffers, too."""
        arguments = (structured_name_prefix, include_sublayers, True)
        return self._state_dict(destination, arguments, use_hook)

    def register_state_dict_hook(self, hook: Callable[..., Any]) -> HookRemoveHelper:
        """Call ``hook(state)`` with each state_dict; what it returns replaces it."""
        return _add(self._state_dict_hooks, hook)

    def set_state_dict(
        self, state_dict: Mapping[str, Any], use_structured_name: bool = True
    ) -> tuple[list[str], list[str]]:
        """Write values (arrays, tensors, or variables that have a value) to the global scope.

        Returns what the layer has and ``state_dict`` lacks, or has in another shape, and what is in it beside.
        A warning names what is not written. ``use_structured_name=False``: keys are names of variables.
        """
        lacking, values = [], {}
        for path, variable in self._state("", True, False):
            key = path if use_structured_name else variable.name
            why = "it is not in the dict"
            if state_dict.get(key) is not None:
                value = _array(state_dict[key])
                if value.shape == variable.shape:
                    values[key] = (variable, value)
                    continue
                why = f"its shape is {list(variable.shape)}, in the dict {list(value.shape)}"
            lacking.append(key)
            warn_user(f"set_state_dict leaves {key} as it is: {why}.")
        for variable, value in values.values():
            variable.set_value(value)
        return lacking, [key for key in state_dict if key not in values]

    set_dict = load_dict = set_state_dict

    def to(self, device: Any = None, dtype: Any = None, blocking: bool | None = None) -> Layer:
        """Give parameters another element type, before anything is built with them.

        ``device`` and ``blocking`` change nothing: the executor's place says where a program runs.

        Raises:
            InvalidState: an op reads a parameter already.
        """
        if dtype is None:
            return self
        kind = to_var_type(dtype)
        for layer in self.sublayers(include_self=True):
            layer._dtype = to_numpy(kind).name
        for parameter in self.parameters():
            _retype(parameter, kind)
        return self

    def astype(self, dtype: Any) -> Layer:
        """Give parameters another element type: see :meth:`to`."""
        return self.to(dtype=dtype)

    backward = _refuse("backward", "optimizer.minimize(loss) appends the backward pass")
    clear_gradients = _refuse("clear_gradients", "gradients are computed anew in each step")
    zero_grad = _refuse("zero_grad", "gradients are computed anew in each step")
    cuda = _refuse("cuda", "give the executor a CUDAPlace")
    cpu = _refuse("cpu", "give the executor a CPUPlace")


def _array(value: Any) -> np.ndarray:
    return np.asarray(value.get_value() if isinstance(value, Variable) else value)


def _retype(parameter: Parameter, kind: VarType) -> None:
    program = parameter.block.program
    if any(parameter.name in op.input_arg_names for b in program.blocks for op in b.ops):
        raise InvalidState(
            f"parameter {parameter.name!r} is in use: call to() before ops are built with it."
        )
    startup = default_startup_program().global_block()
    for op in startup.ops:
        if parameter.name in op.output_arg_names:
            op._set_attr("dtype", int(kind))
    for variable in (parameter, startup.vars.get(parameter.name)):
        if variable is not None:
            variable.desc.set_dtype(kind)
    program.touch()
    value = global_scope().find_var(parameter.name)
    if value is not None and value.get_tensor().initialized:
        tensor = value.get_tensor()
        tensor.set(tensor.numpy().astype(to_numpy(kind)))
