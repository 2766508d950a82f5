"""The helper of layers and optimizers that programs write themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...strategies.errors import InvalidType, InvalidValue
from ..program.variable import Parameter, Variable
from . import helper
from .initializer import Initializer
from .param_attr import ParamAttr
from .shape import assign


class LayerHelper(helper.LayerHelper):
    """Serves one call of a layer; ``kwargs`` are the layer's arguments (its ``locals()``)."""

    def __init__(self, layer_type: str, **kwargs: Any) -> None:
        super().__init__(layer_type, kwargs.get("name"))
        self.kwargs = kwargs

    @property
    def param_attr(self) -> ParamAttr | None:
        """The argument ``param_attr``; None if there is no parameter."""
        return ParamAttr.of(self.kwargs.get("param_attr"))

    @property
    def bias_attr(self) -> ParamAttr | None:
        """The argument ``bias_attr``; None if there is no bias."""
        return ParamAttr.of(self.kwargs.get("bias_attr"))

    def multiple_param_attr(self, length: int) -> list[ParamAttr | None]:
        """Return the argument ``param_attr`` for each of ``length`` inputs."""
        return ParamAttr.many(self.kwargs.get("param_attr"), length)

    def multiple_input(self, input_param_name: str = "input") -> list[Variable]:
        """Return an argument that is one variable or several, as a list."""
        inputs = self.kwargs.get(input_param_name, [])
        inputs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        return [self.to_variable(item) for item in inputs]

    def input(self, input_param_name: str = "input") -> Variable:
        """Return an argument that is one variable.

        Raises:
            InvalidValue: the argument has several.
        """
        inputs = self.multiple_input(input_param_name)
        if len(inputs) != 1:
            raise InvalidValue(
                f"{self.layer_type}: {input_param_name} must be one Variable, got {len(inputs)}."
            )
        return inputs[0]

    def iter_inputs_and_params(
        self, input_param_name: str = "input"
    ) -> Iterator[tuple[Variable, ParamAttr | None]]:
        """Yield each input with the settings of its parameter."""
        inputs = self.multiple_input(input_param_name)
        yield from zip(inputs, self.multiple_param_attr(len(inputs)), strict=True)

    def input_dtype(self, input_param_name: str = "input") -> Any:
        """Return the dtype that all inputs have.

        Raises:
            InvalidValue: the inputs have several dtypes.
        """
        dtypes = {variable.dtype for variable in self.multiple_input(input_param_name)}
        if len(dtypes) > 1:
            raise InvalidValue(
                f"{self.layer_type}: the inputs must have one dtype, got {sorted(map(str, dtypes))}."
            )
        return dtypes.pop() if dtypes else None

    def to_variable(self, value: Any, name: str | None = None) -> Variable:
        """Return a variable; an array becomes a constant of the program."""
        return value if isinstance(value, Variable) else assign(value)

    def is_instance(self, param_name: str, cls: Any) -> None:
        """Raise InvalidType unless an argument is of a type."""
        argument = self.kwargs.get(param_name)
        if not isinstance(argument, cls):
            raise InvalidType(
                f"{self.layer_type}: {param_name} must be of type {cls}, got {type(argument)}."
            )

    def get_parameter(self, name: str) -> Parameter:
        """Return a parameter of the main program by name.

        Raises:
            InvalidValue: the program has no such parameter.
        """
        variable = self.main_program.global_block().vars.get(name)
        if not isinstance(variable, Parameter):
            raise InvalidValue(f"{self.layer_type}: the program has no parameter {name!r}.")
        return variable

    def create_variable_for_type_inference(
        self, dtype: Any, stop_gradient: bool = False
    ) -> Variable:
        """Create a temporary whose shape comes from the op that writes it."""
        return self.new(dtype, stop_gradient)

    def create_variable(self, *args: Any, **kwargs: Any) -> Variable:
        """Create a variable in the current block."""
        return self.block.create_var(*args, **kwargs)

    def create_global_variable(
        self, persistable: bool = False, *args: Any, **kwargs: Any
    ) -> Variable:
        """Create a variable in the first block of the main program."""
        return self.main_program.global_block().create_var(*args, persistable=persistable, **kwargs)

    def create_or_get_global_variable(
        self, name: str, *args: Any, **kwargs: Any
    ) -> tuple[Variable, bool]:
        """Return the variable of a name in the first block, and whether it was created now."""
        block = self.main_program.global_block()
        if block.has_var(name):
            return block.var(name), False
        return self.create_global_variable(*args, name=name, **kwargs), True

    def set_variable_initializer(self, var: Variable, initializer: Initializer) -> Variable:
        """Have the startup program initialise a variable; return the startup program's variable."""
        startup = self.startup_program.global_block()
        settings = {"name": var.name, "shape": var.shape, "dtype": var.dtype}
        variable = startup.create_var(**settings, persistable=True)
        initializer(variable, startup)
        return variable

    def append_bias_op(
        self, input_var: Variable, dim_start: int = 1, dim_end: int | None = None
    ) -> Variable:
        """Add the bias that the argument ``bias_attr`` describes."""
        return self.add_bias(input_var, self.kwargs.get("bias_attr"), dim_start, dim_end)

    def append_activation(self, input_var: Variable) -> Variable:
        """Apply the activation that the argument ``act`` names."""
        return self.activate(input_var, self.kwargs.get("act"))
