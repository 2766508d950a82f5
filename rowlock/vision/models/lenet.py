"""LeNet: LeCun et al., Gradient-based learning applied to document recognition, 1998."""

from __future__ import annotations

from typing import Any

from ...graph.program.variable import Variable
from ...names import publish_definitions
from ...nn import Conv2D, Linear, MaxPool2D, ReLU, Sequential
from .blocks import Classifier


class LeNet(Classifier):
    """Digits [N, 1, 28, 28] to [N, num_classes]; without classes, features [N, 16, 5, 5]."""

    _ends = ("", "fc")

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__(num_classes, with_pool=False)
        self.features = Sequential(
            Conv2D(1, 6, 3, padding=1),
            ReLU(),
            MaxPool2D(2, 2),
            Conv2D(6, 16, 5),
            ReLU(),
            MaxPool2D(2, 2),
        )
        self._finish(lambda: Sequential(Linear(400, 120), Linear(120, 84), Linear(84, num_classes)))

    def _features(self, x: Variable) -> Any:
        return self.features(x)


publish_definitions(__name__)
