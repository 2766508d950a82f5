"""What the models share: a convolution with its norm, the way from features to scores, and ``builder``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from ...functions.manipulation import flatten
from ...graph.layers.param_attr import ParamAttr
from ...graph.program.variable import Variable
from ...nn import AdaptiveAvgPool2D, BatchNorm2D, Conv2D, Layer, ReLU, Sequential
from ...nn.initializer import Uniform
from ...strategies.errors import Unsupported


class ConvNormActivation(Sequential):
    """A convolution, its norm and its activation, of which the last two may be None.

    ``padding`` None keeps the size of images where ``stride`` is 1; ``bias`` None: where no norm follows.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any = 3,
        stride: Any = 1,
        padding: Any = None,
        groups: int = 1,
        norm_layer: Callable[[int], Layer] | None = BatchNorm2D,
        activation_layer: Callable[[], Layer] | None = ReLU,
        dilation: int = 1,
        bias: bool | None = None,
    ) -> None:
        if padding is None:
            sides = kernel_size if isinstance(kernel_size, tuple) else (kernel_size, kernel_size)
            padding = [(side - 1) // 2 * dilation for side in sides]
        conv = Conv2D(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias_attr=None if bias or (bias is None and norm_layer is None) else False,
        )
        layers: list[Layer] = [conv]
        if norm_layer is not None:
            layers.append(norm_layer(out_channels))
        if activation_layer is not None:
            layers.append(activation_layer())
        super().__init__(*layers)


class Classifier(Layer):
    """Images [N, C, H, W] to features, ``with_pool`` to their mean, with ``num_classes`` > 0 to scores.

    A subclass creates the layers of ``_features``, then calls ``_finish``; ``_ends`` names the attributes that
    the pool and the layer of scores become.
    """

    _ends: ClassVar[tuple[str, str]]

    def __init__(self, num_classes: int, with_pool: bool) -> None:
        super().__init__()
        self.num_classes, self.with_pool = num_classes, with_pool

    def _finish(self, scores: Callable[[], Layer], size: int = 1) -> None:
        if self.with_pool:
            setattr(self, self._ends[0], AdaptiveAvgPool2D(size))
        if self.num_classes > 0:
            setattr(self, self._ends[1], scores())

    def _features(self, x: Variable) -> Any:
        raise NotImplementedError

    def forward(self, x: Variable) -> Any:
        """Return scores before softmax, or features."""
        x = self._features(x)
        if self.with_pool:
            x = getattr(self, self._ends[0])(x)
        if self.num_classes > 0:
            x = getattr(self, self._ends[1])(flatten(x, 1))
        return x


def divisible(channels: float, divisor: int = 8) -> int:
    """Round to the nearest multiple of ``divisor`` that is not more than a tenth below ``channels``."""
    nearest = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return nearest + divisor if nearest < 0.9 * channels else nearest


def uniform(fan_in: float, scale: float = 1.0) -> ParamAttr:
    """Initial values between -b and b, where b is the root of ``scale / fan_in``."""
    bound = math.sqrt(scale / fan_in)
    return ParamAttr(initializer=Uniform(-bound, bound))


def refuse_pretrained(pretrained: bool, name: str) -> None:
    """Refuse to download.

    Raises:
        Unsupported: ``pretrained`` is true.
    """
    if pretrained:
        raise Unsupported(
            f"{name}(pretrained=True) would download parameters, and Rowlock downloads none: build {name}(), "
            "run the startup program, and call model.set_state_dict(paddle.load(path)) with a file of them."
        )


def builder(
    module: str, name: str, network: type[Layer], *args: Any, **fixed: Any
) -> Callable[..., Any]:
    """Return the function ``name(pretrained=False, **kwargs)`` that builds ``network(*args, **kwargs)``.

    ``fixed`` wins over ``kwargs``.
    """

    def build(pretrained: bool = False, **kwargs: Any) -> Any:
        refuse_pretrained(pretrained, name)
        return network(*args, **{**kwargs, **fixed})

    build.__name__ = build.__qualname__ = name
    build.__module__ = module
    build.__doc__ = f"Build {name}, untrained: keywords are those of :class:`{network.__name__}`."
    return build
