"""AlexNet: Krizhevsky, arXiv 1404.5997."""

from __future__ import annotations

from typing import Any

from ...functions.manipulation import flatten
from ...graph.program.variable import Variable
from ...names import publish_definitions
from ...nn import Conv2D, Dropout, Layer, Linear, MaxPool2D
from ...nn import functional as F
from .blocks import builder, uniform


def _conv(inputs: int, outputs: int, size: int, stride: int, padding: int) -> Conv2D:
    fan_in = inputs * size * size
    weight, bias = uniform(fan_in), uniform(fan_in)
    return Conv2D(inputs, outputs, size, stride, padding, weight_attr=weight, bias_attr=bias)


class ConvPoolLayer(Layer):
    """A convolution, relu, and the largest of windows of 3 x 3."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, padding: int) -> None:
        super().__init__()
        self._conv = _conv(inputs, outputs, size, stride, padding)
        self._pool = MaxPool2D(3, 2)

    def forward(self, x: Variable) -> Any:
        """Return images of about half the size."""
        return self._pool(F.relu(self._conv(x)))


class AlexNet(Layer):
    """Images [N, 3, 224, 224] to [N, num_classes]; without classes, features [N, 256, 6, 6]."""

    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__()
        self.num_classes = num_classes
        self._conv1 = ConvPoolLayer(3, 64, 11, 4, 2)
        self._conv2 = ConvPoolLayer(64, 192, 5, 1, 2)
        self._conv3 = _conv(192, 384, 3, 1, 1)
        self._conv4 = _conv(384, 256, 3, 1, 1)
        self._conv5 = ConvPoolLayer(256, 256, 3, 1, 1)
        if num_classes > 0:
            features = 256 * 6 * 6
            self._drop1 = Dropout(0.5, mode="downscale_in_infer")
            self._fc6 = Linear(features, 4096, uniform(features), uniform(features))
            self._drop2 = Dropout(0.5, mode="downscale_in_infer")
            self._fc7 = Linear(4096, 4096, uniform(features), uniform(features))
            self._fc8 = Linear(4096, num_classes, uniform(features), uniform(features))

    def forward(self, inputs: Variable) -> Any:
        """Return scores before softmax, or features."""
        x = F.relu(self._conv3(self._conv2(self._conv1(inputs))))
        x = self._conv5(F.relu(self._conv4(x)))
        if self.num_classes > 0:
            x = F.relu(self._fc6(self._drop1(flatten(x, 1))))
            x = self._fc8(F.relu(self._fc7(self._drop2(x))))
        return x


alexnet = builder(__name__, "alexnet", AlexNet)

publish_definitions(__name__, withhold=(ConvPoolLayer,))
