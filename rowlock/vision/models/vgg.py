"""VGG: Simonyan and Zisserman, arXiv 1409.1556."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...graph.layers.arguments import of_family
from ...graph.program.variable import Variable
from ...names import publish_definitions
from ...nn import BatchNorm2D, Conv2D, Dropout, Layer, Linear, MaxPool2D, ReLU, Sequential
from .blocks import Classifier, refuse_pretrained

_WIDTHS = (64, 128, 256, 512, 512)
# How many convolutions have each width.
_COUNTS = {
    "vgg11": (1, 1, 2, 2, 2),
    "vgg13": (2, 2, 2, 2, 2),
    "vgg16": (2, 2, 3, 3, 3),
    "vgg19": (2, 2, 4, 4, 4),
}


class VGG(Classifier):
    """Images [N, 3, H, W], by ``features`` [N, 512, h, w], to [N, num_classes].

    ``with_pool`` has features of any size become 7 x 7, which the classifier needs.
    """

    _ends = ("avgpool", "classifier")

    def __init__(self, features: Layer, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__(num_classes, with_pool)
        self.features = features
        self._finish(self._classifier, 7)

    def _classifier(self) -> Sequential:
        return Sequential(
            Linear(512 * 7 * 7, 4096),
            ReLU(),
            Dropout(),
            Linear(4096, 4096),
            ReLU(),
            Dropout(),
            Linear(4096, self.num_classes),
        )

    def _features(self, x: Variable) -> Any:
        return self.features(x)


def make_layers(cfg: Sequence[Any], batch_norm: bool = False) -> Sequential:
    """Return 3 x 3 convolutions of the widths in ``cfg``; "M" in it halves images."""
    layers: list[Layer] = []
    channels = 3
    for width in cfg:
        if width == "M":
            layers.append(MaxPool2D(2, 2))
            continue
        layers.append(Conv2D(channels, width, 3, padding=1))
        if batch_norm:
            layers.append(BatchNorm2D(width))
        layers.append(ReLU())
        channels = width
    return Sequential(*layers)


def _vgg(name: str, /, pretrained: bool = False, batch_norm: bool = False, **kwargs: Any) -> VGG:
    refuse_pretrained(pretrained, name)
    cfg: list[Any] = []
    for width, count in zip(_WIDTHS, _COUNTS[name], strict=True):
        cfg += [*[width] * count, "M"]
    return VGG(make_layers(cfg, batch_norm), **kwargs)


_ABOUT = "Build the VGG of {} layers with parameters; keywords are those of :class:`VGG`."
vgg11 = of_family(_vgg, "vgg11", text=_ABOUT.format(11))
vgg13 = of_family(_vgg, "vgg13", text=_ABOUT.format(13))
vgg16 = of_family(_vgg, "vgg16", text=_ABOUT.format(16))
vgg19 = of_family(_vgg, "vgg19", text=_ABOUT.format(19))

publish_definitions(__name__, withhold=(make_layers,))
