"""ParamAttr: how a layer's parameter is named, initialised, trained and regularised."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from ...strategies.errors import InvalidType, require_type
from .initializer import Initializer
from .regularizer import WeightDecayRegularizer


class ParamAttr:
    """Settings of one parameter; ``learning_rate`` multiplies the optimizer's."""

    def __init__(
        self,
        name: str | None = None,
        initializer: Initializer | None = None,
        learning_rate: float = 1.0,
        regularizer: WeightDecayRegularizer | None = None,
        trainable: bool = True,
        gradient_clip: Any = None,
        do_model_average: bool = True,
        need_clip: bool = True,
    ) -> None:
        require_type(name, str | None, "ParamAttr: name must be a str")
        for argument, value, example in (
            ("initializer", initializer, "initializer.Constant(0.0)"),
            ("regularizer", regularizer, "regularizer.L2Decay(0.01)"),
        ):
            if value is not None and (isinstance(value, type) or not callable(value)):
                raise InvalidType(
                    f"ParamAttr: {argument} must be one such as fluid.{example}, got {value!r}."
                )
        self.name = name
        self.initializer = initializer
        self.learning_rate = learning_rate
        self.regularizer = regularizer
        self.trainable = trainable
        self.gradient_clip = gradient_clip
        self.do_model_average = do_model_average
        self.need_clip = need_clip

    def __repr__(self) -> str:
        default = vars(ParamAttr())
        fields = (f"{k}={v!r}" for k, v in vars(self).items() if v != default.get(k))
        return f"ParamAttr({', '.join(fields)})"

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments of :meth:`Block.create_parameter`."""
        return {
            "name": self.name,
            "optimize_attr": {"learning_rate": self.learning_rate},
            "regularizer": self.regularizer,
            "trainable": self.trainable,
            "gradient_clip_attr": self.gradient_clip,
            "do_model_average": self.do_model_average,
            "need_clip": self.need_clip,
        }

    @staticmethod
    def of(value: Any) -> ParamAttr | None:
        """Return the ParamAttr of a layer argument; None if there is to be no parameter.

        None: the defaults; a str: its name; an Initializer or regularizer: only that; False: no parameter.

        Raises:
            InvalidType: anything else.
        """
        if value is None or value is True:
            return ParamAttr()
        if value is False:
            return None
        if isinstance(value, ParamAttr):
            return value
        if isinstance(value, str):
            return ParamAttr(name=value)
        if isinstance(value, Initializer):
            return ParamAttr(initializer=value)
        if isinstance(value, WeightDecayRegularizer):
            return ParamAttr(regularizer=value)
        raise InvalidType(
            f"a parameter attribute is a ParamAttr, a name, an Initializer, a regularizer, None or False, "
            f"got {value!r}."
        )

    @staticmethod
    def _to_attr(value: Any) -> Any:
        """Return :meth:`of` a value as Paddle's libraries ask for it: False if there is to be no parameter.

        A list of values gives a list.
        """
        if isinstance(value, (list, tuple)):
            return [ParamAttr._to_attr(item) for item in value]
        attr = ParamAttr.of(value)
        return False if attr is None else attr

    @staticmethod
    def many(value: Any, count: int) -> list[ParamAttr | None]:
        """Return ``count`` attributes from one (copied without its name) or a sequence of them."""
        if isinstance(value, Sequence) and not isinstance(value, str):
            return [ParamAttr.of(item) for item in value]
        first = ParamAttr.of(value)
        if first is None or count == 1:
            return [first] * count
        copies: list[ParamAttr | None] = [first]
        for _ in range(count - 1):
            attr = copy(first)
            attr.name = None
            copies.append(attr)
        return copies


class WeightNormParamAttr(ParamAttr):
    """Settings of a weight that is trained as a direction and a length.

    ``dim`` is the dimension along which each index has a length of its own (None: all have one).
    """

    def __init__(
        self,
        dim: int | None = None,
        name: str | None = None,
        initializer: Initializer | None = None,
        learning_rate: float = 1.0,
        regularizer: WeightDecayRegularizer | None = None,
        trainable: bool = True,
        do_model_average: bool = False,
        need_clip: bool = True,
    ) -> None:
        super().__init__(
            name,
            initializer,
            learning_rate,
            regularizer,
            trainable,
            do_model_average=do_model_average,
            need_clip=need_clip,
        )
        require_type(dim, int | None, "WeightNormParamAttr: dim must be an int or None")
        self.dim = dim
