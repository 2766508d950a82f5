"""Sizes, batches and first weights of the large models that benchmarks train: the same for every contender."""

from dataclasses import dataclass

import numpy as np

BLOCKS = ((64, 3), (128, 4), (256, 6), (512, 3))  # width and number of bottlenecks in each stage


@dataclass(frozen=True)
class ImageSize:
    """A ResNet-50's batch; ``blocks`` and ``stem`` may be smaller to try things."""

    rows: int = 256
    pixels: int = 224
    classes: int = 1000
    stem: int = 64
    blocks: tuple = BLOCKS

    def operations(self):
        """Return the floating-point operations of a training step: three times those of the forward pass."""
        side = self.pixels // 2
        total = 2 * side**2 * self.stem * 3 * 49
        side, wide = side // 2, self.stem
        for stage, (width, count) in enumerate(self.blocks):
            for block in range(count):
                stride = 2 if stage and not block else 1
                total += 2 * side**2 * wide * width
                side //= stride
                total += 2 * side**2 * width * (9 * width + 4 * width)
                if not block:
                    total += 2 * side**2 * wide * 4 * width
                wide = 4 * width
        return 3 * self.rows * (total + 2 * wide * self.classes)


@dataclass(frozen=True)
class TextSize:
    """A GPT-2's batch and sizes."""

    rows: int = 16
    length: int = 1024
    words: int = 50304  # 50,257, and some to reach a multiple of 128
    layers: int = 12
    width: int = 768
    heads: int = 12

    def parameters(self):
        """Return how many numbers are trained."""
        each = 12 * self.width**2 + 13 * self.width
        return self.layers * each + (self.words + self.length + 2) * self.width

    def operations(self):
        """Return the floating-point operations of a training step, all of the attention's scores counted."""
        products = self.parameters() - self.length * self.width
        attention = 2 * self.layers * self.length * self.width
        return 6 * self.rows * self.length * (products + attention)


SIZES = {"resnet50": ImageSize(), "gpt2": TextSize()}
TINY = {
    "resnet50": ImageSize(rows=4, pixels=32, classes=10, stem=8, blocks=((8, 1), (16, 1))),
    "gpt2": TextSize(rows=2, length=16, words=64, layers=2, width=32, heads=2),
}


def feed(name, size, step=0):
    """Return a batch of random images and classes, or of words and the words behind them."""
    rng = np.random.RandomState(100 + step)
    if name == "resnet50":
        image = rng.standard_normal((size.rows, 3, size.pixels, size.pixels)).astype("float32")
        return {"image": image, "label": rng.randint(0, size.classes, (size.rows, 1))}
    words = rng.randint(0, size.words, (size.rows, size.length + 1))
    return {"words": words[:, :-1].copy(), "label": words[:, 1:, None].copy()}


def image_shapes(size):
    """Yield (name, shape, standard deviation) of a ResNet-50's filters and last matrix, in order."""
    yield from filter_shape("stem", size.stem, 3, 7)
    wide = size.stem
    for stage, (width, count) in enumerate(size.blocks):
        for block in range(count):
            name = "{}.{}".format(stage, block)
            yield from filter_shape(name + ".1", width, wide, 1)
            yield from filter_shape(name + ".2", width, width, 3)
            yield from filter_shape(name + ".3", 4 * width, width, 1)
            if not block:
                yield from filter_shape(name + ".0", 4 * width, wide, 1)
            wide = 4 * width
    yield "head", (wide, size.classes), 0.01


def filter_shape(name, channels, wide, side):
    """Yield one filter."""
    yield name, (channels, wide, side, side), (2 / (side * side * wide)) ** 0.5


def text_shapes(size):
    """Yield the same of a GPT-2's matrices, which have a row for each input."""
    yield "words_w", (size.words, size.width), 0.02
    yield "positions", (size.length, size.width), 0.01
    for layer in range(size.layers):
        name, width = "layer{}".format(layer), size.width
        yield name + ".joint", (width, 3 * width), 0.02
        yield name + ".out", (width, width), 0.02
        yield name + ".wide", (width, 4 * width), 0.02
        yield name + ".narrow", (4 * width, width), 0.02


def weights(name, size):
    """Return a model's first weights by name; what they leave out begins at zero, or one in norms."""
    rng = np.random.RandomState(1)
    shapes = image_shapes(size) if name == "resnet50" else text_shapes(size)
    return {
        key: rng.standard_normal(shape).astype("float32") * np.float32(deviation)
        for key, shape, deviation in shapes
    }
