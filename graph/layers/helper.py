"""LayerHelper, by which layers name variables, create parameters, and append ops, bias and activation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...strategies.errors import InvalidType, InvalidValue, nearest, require_type
from ...strategies.types import FLOATS, to_var_type
from ..ops.operands import Declared, Slot
from ..ops.registry import OPS, declaration
from ..program import unique_name
from ..program.block import Block
from ..program.operator import Operator
from ..program.program import Program, default_main_program, default_startup_program
from ..program.variable import Variable
from .arguments import flag, integer, number
from .initializer import CHOSEN, ConstantInitializer, Initializer, XavierInitializer
from .param_attr import ParamAttr


class LayerHelper:
    """Serves one call of a layer; ``name`` is the user's, or ``layer_type`` with a number."""

    def __init__(self, layer_type: str, name: str | None = None) -> None:
        require_type(name, str | None, f"{layer_type}: name must be a str")
        self.layer_type = layer_type
        self.name = name or unique_name.generate(layer_type)

    @property
    def main_program(self) -> Program:
        """The program ops are added to."""
        return default_main_program()

    @property
    def startup_program(self) -> Program:
        """The program initializers are added to."""
        return default_startup_program()

    @property
    def block(self) -> Block:
        """The block ops are added to."""
        return self.main_program.current_block()

    def append_op(
        self,
        type: str,
        inputs: Any = None,
        outputs: Any = None,
        attrs: Any = None,
        stop_gradient: bool = False,
    ) -> Operator:
        """Append an op to the current block."""
        return self.block.append_op(type, inputs, outputs, attrs)

    def new(self, dtype: Any = None, stop_gradient: bool = False) -> Variable:
        """Create a temporary named ``<layer>.tmp_<n>``; its shape comes from the op that writes it."""
        return self.block.create_var(name=self.new_name(), dtype=dtype, stop_gradient=stop_gradient)

    def new_name(self) -> str:
        """Return the next name of a temporary of this layer."""
        return unique_name.generate(f"{self.name}.tmp")

    def layer(self, op_type: str, /, **fields: Any) -> Variable:
        """Append an op and return its result, the first that it declares: see :meth:`layers`."""
        return self.layers(op_type, _record(op_type).outputs[0].name, **fields)[0]

    def layers(
        self, op_type: str, results: str, constants: str = "", /, **fields: Any
    ) -> tuple[Variable, ...]:
        """Append an op and return the variables in its slots ``results``; no gradient passes to ``constants``.

        ``fields`` are those of the op's record, or the names of their slots: operands, attributes, and
        variables that exist to be written; other ``results`` are new. None leaves a field out.

        Raises:
            InvalidType: an attribute is no number of the kind that the record declares.
        """
        record = _record(op_type)
        inputs, outputs = _take(record.inputs, fields), _take(record.outputs, fields)
        for slot in results.split():
            if outputs.get(slot) is None:
                outputs[slot] = self.new(None, slot in constants.split())
        for field, value in fields.items():
            check = NUMBERS.get(record.kinds.get(field, ""))
            if check is not None and value is not None:
                fields[field] = check(value, field, self.layer_type)
        self.append_op(op_type, inputs, outputs, fields)
        return tuple(outputs[slot] for slot in results.split())

    def constant_layers(self, op_type: str, results: str, /, **fields: Any) -> tuple[Variable, ...]:
        """As :meth:`layers`; no gradient passes to any of the results."""
        return self.layers(op_type, results, results, **fields)

    def create_parameter(
        self,
        attr: Any,
        shape: Sequence[int],
        dtype: Any,
        is_bias: bool = False,
        default_initializer: Initializer | None = None,
        stop_gradient: bool = False,
    ) -> Variable | None:
        """Create a parameter in both programs, or return None if ``attr`` is False.

        Without an initializer, weights are Xavier uniform and biases zero.

        Raises:
            InvalidType: an integer parameter has no initializer.
        """
        settings = ParamAttr.of(attr)
        if settings is None:
            return None
        initializer = settings.initializer or CHOSEN.get(is_bias) or default_initializer
        if initializer is None:
            if to_var_type(dtype) not in FLOATS:
                kind = to_var_type(dtype).name.lower()
                raise InvalidType(
                    f"{self.layer_type}: a parameter of {kind} has no initializer of its own. Cast the input "
                    f"(layers.cast(x, 'float32')), or give ParamAttr(initializer=...)."
                )
            initializer = ConstantInitializer(0.0) if is_bias else XavierInitializer()
        if not callable(initializer):
            raise InvalidType(
                f"{self.layer_type}: default_initializer must be one such as "
                f"fluid.initializer.Constant(0.0), got {initializer!r}."
            )
        if type(settings) in COMPOSED:
            compose = COMPOSED[type(settings)]
            return compose(self, settings, list(map(int, shape)), dtype, initializer)
        keywords = settings.settings()
        keywords["name"] = settings.name or unique_name.generate(
            f"{self.name}.{'b' if is_bias else 'w'}"
        )
        shape = [int(dim) for dim in shape]
        self.initialise(keywords["name"], shape, dtype, initializer, keywords)
        parameter = self.main_program.global_block().create_parameter(shape, dtype, **keywords)
        parameter.stop_gradient = stop_gradient or not parameter.trainable
        return parameter

    def initialise(
        self, name: str, shape: Any, dtype: Any, initializer: Initializer, keywords: Any
    ) -> None:
        """Have the startup program create a parameter, unless it does already."""
        startup = self.startup_program.global_block()
        already = name in startup.vars and any(name in op.output_arg_names for op in startup.ops)
        if already:
            startup.check_same(name, shape, dtype)
        else:
            initializer(startup.create_parameter(shape, dtype, **keywords), startup)

    def create_global(
        self,
        name: str | None,
        shape: Sequence[int],
        dtype: Any,
        initializer: Initializer,
        **settings: Any,
    ) -> Variable:
        """Create a persistable variable that is no parameter, in both programs."""
        name = name or self.new_name()
        settings = {"name": name, "shape": shape, "dtype": dtype, "persistable": True, **settings}
        main, startup = self.main_program.global_block(), self.startup_program.global_block()
        existed = main.has_var(name)
        variable = main.create_var(**settings)
        if not existed or not startup.has_var(name):
            initializer(startup.create_var(**settings), startup)
        return variable

    def add_bias(
        self, x: Variable, bias_attr: Any, dim_start: int = 1, dim_end: int | None = None
    ) -> Variable:
        """Add a bias over dimensions ``dim_start`` to ``dim_end`` of ``x``, unless ``bias_attr`` is False."""
        assert x.shape is not None
        bias = self.create_parameter(
            bias_attr, list(x.shape[dim_start:dim_end]), x.dtype, is_bias=True
        )
        if bias is None:
            return x
        return self.layer("elementwise_add", x=x, y=bias, axis=dim_start)

    def activate(self, x: Variable, act: str | dict[str, Any] | None) -> Variable:
        """Apply the activation op named ``act`` (or described by ``{"type": ..., attrs}``)."""
        if act is None:
            return x
        if not isinstance(act, str | dict) or (isinstance(act, dict) and "type" not in act):
            raise InvalidType(
                f"{self.layer_type}: act must be the name of an operator such as 'relu', or a dict of its type "
                f"and attributes, got {act!r}."
            )
        attrs = {"type": act} if isinstance(act, str) else dict(act)
        op_type = attrs.pop("type")
        if declaration(op_type) is None:
            raise InvalidValue(
                f"{self.layer_type}: act {op_type!r} is no operator.{nearest(op_type, OPS)}"
            )
        return self.layer(op_type, x=x, **attrs)


def layer(op_type: str, name: str | None = None, /, **fields: Any) -> Variable:
    """As :meth:`LayerHelper.layer`, of a layer of its own."""
    return LayerHelper(op_type, name).layer(op_type, **fields)


def constant_layer(op_type: str, name: str | None = None, /, **fields: Any) -> Variable:
    """As :func:`layer`; no gradient passes to the result."""
    return constant_layers(op_type, name, _record(op_type).outputs[0].name, **fields)[0]


def layers(
    op_type: str, name: str | None, results: str, constants: str = "", /, **fields: Any
) -> tuple[Variable, ...]:
    """As :meth:`LayerHelper.layers`, of a layer of its own."""
    return LayerHelper(op_type, name).layers(op_type, results, constants, **fields)


def constant_layers(
    op_type: str, name: str | None, results: str, /, **fields: Any
) -> tuple[Variable, ...]:
    """As :meth:`LayerHelper.constant_layers`, of a layer of its own."""
    return LayerHelper(op_type, name).constant_layers(op_type, results, **fields)


def _record(op_type: str) -> Declared:
    entry = declaration(op_type)
    assert entry is not None, f"{op_type} is not declared"
    return entry.record.declared()


def _take(slots: Sequence[Slot], fields: dict[str, Any]) -> dict[str, Any]:
    """Remove the variables of slots from ``fields``, and return them by the names of their slots."""
    names = [(slot.name, field) for slot in slots for field in (slot.parameter, slot.name)]
    return {slot: fields.pop(field) for slot, field in names if field in fields}


# Kinds of attributes -> what returns a number of that kind, or refuses it
NUMBERS: Mapping[str, Callable[[Any, str, str], Any]] = {
    **dict.fromkeys(("int", "Positive", "NotNegative"), integer),
    "float": number,
    "bool": flag,
}

# Parameters that are computed from others, by the kind of attribute that asks for them.
COMPOSED: dict[
    type[ParamAttr], Callable[[LayerHelper, Any, list[int], Any, Initializer], Variable]
] = {}


def check_memory(before: Variable, after: Variable, layer: str) -> None:
    """Raise InvalidValue unless a memory is followed by one of its shape, as far as it is known, and type."""
    shapes = before.shape or (), after.shape or ()
    sizes = zip(*shapes, strict=False)
    same = len(shapes[0]) == len(shapes[1]) and all(
        -1 in pair or len({*pair}) == 1 for pair in sizes
    )
    if not same or before.dtype != after.dtype:
        raise InvalidValue(
            f"{layer}: the memory {before} is followed by {after}: both must have one shape and type."
        )
