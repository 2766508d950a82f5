"""The nets of ``benchmarks/models.py`` in JAX: each returns parameters, loss, batch and optimizer."""

import sys
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.models import (
    CONVNEXT_STAGES,
    ENCODER,
    GPT,
    GROWTH,
    MIXER,
    RESIDUAL_STAGES,
    SEPARABLE_STAGES,
    SIGNAL,
    SIGNAL_STAGES,
    TABLES,
    TEXT,
    UNET,
    VGG_STAGES,
    WIDE_DEEP,
)
from benchmarks.workers.jax_parts import (
    RNG,
    apply,
    batch_normed,
    biased_conv,
    biased_weights,
    classes,
    conv,
    conv_bn,
    conv_bn_weights,
    drawn,
    images,
    linear,
    normed,
    pooled,
    scale_and_shift,
    widen,
    widened,
)


def fit():
    """Return parameters, loss, batch and optimizer of the linear regression."""
    batch = RNG.randn(32, 13).astype("float32"), RNG.randn(32, 1).astype("float32")
    return linear(13, 1), lambda p, x, y: jnp.mean((apply(p, x) - y) ** 2), batch, "sgd"


def mlp():
    """Return 784-512-512-10."""

    def loss(p, x, y):
        for layer in p[:-1]:
            x = jax.nn.relu(apply(layer, x))
        return classes(apply(p[-1], x), y)

    return [linear(784, 512), linear(512, 512), linear(512, 10)], loss, images(128, 784), "adam"


def lenet():
    """Return two convolutions with pooling."""

    def loss(p, x, y):
        for layer in p[:-1]:
            x = jax.nn.relu(biased_conv(layer, x, padding="VALID"))
            x = pooled(x, lax.max, -jnp.inf)
        return classes(apply(p[-1], x.reshape(x.shape[0], -1)), y)

    convs = [biased_weights(i, o, 5, 5) for i, o in ((1, 20), (20, 50))]
    return [*convs, linear(800, 10)], loss, images(128, 1, 28, 28), "adam"


def resnet18():
    """Return ResNet-18 for small images."""
    blocks, wide = [], 64
    for channels, stride in RESIDUAL_STAGES:
        block = {
            "a": conv_bn_weights(wide, channels, 3),
            "b": conv_bn_weights(channels, channels, 3),
        }
        if stride != 1 or wide != channels:
            block["skip"] = conv_bn_weights(wide, channels, 1)
        blocks.append(block)
        wide = channels

    def loss(p, x, y):
        x = jax.nn.relu(conv_bn(p["stem"], x))
        for block, (_, stride) in zip(p["blocks"], RESIDUAL_STAGES, strict=True):
            inner = conv_bn(block["b"], jax.nn.relu(conv_bn(block["a"], x, stride)))
            skip = conv_bn(block["skip"], x, stride) if "skip" in block else x
            x = jax.nn.relu(inner + skip)
        return classes(apply(p["head"], x.mean((2, 3))), y)

    parameters = {"stem": conv_bn_weights(3, 64, 3), "blocks": blocks, "head": linear(wide, 10)}
    return parameters, loss, images(32, 3, 32, 32), "momentum"


def mobilenet():
    """Return depthwise-separable blocks."""
    blocks, wide = [], 32
    for channels, _ in SEPARABLE_STAGES:
        blocks.append((conv_bn_weights(wide, wide, 3, wide), conv_bn_weights(wide, channels, 1)))
        wide = channels

    def loss(p, x, y):
        x = jax.nn.relu(conv_bn(p["stem"], x))
        for (deep, flat), (_, stride) in zip(p["blocks"], SEPARABLE_STAGES, strict=True):
            x = jax.nn.relu(conv_bn(deep, x, stride, x.shape[1]))
            x = jax.nn.relu(conv_bn(flat, x))
        return classes(apply(p["head"], x.mean((2, 3))), y)

    parameters = {"stem": conv_bn_weights(3, 32, 3), "blocks": blocks, "head": linear(wide, 10)}
    return parameters, loss, images(32, 3, 32, 32), "momentum"


def layer_weights(size):
    """Return the parameters of a transformer layer."""
    width = size["width"]
    return {
        "joint": linear(width, 3 * width),
        "out": linear(width, width),
        **widened(width),
        "norms": (scale_and_shift(width), scale_and_shift(width)),
    }


def attend(layer, x, heads, causal):
    """Return self-attention."""
    rows, length, width = x.shape
    joint = apply(layer["joint"], x).reshape(rows, length, 3, heads, width // heads)
    query, key, value = jnp.moveaxis(joint, 2, 0)
    scores = jnp.einsum("bthd,bshd->bhts", query, key) * (width // heads) ** -0.5
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    mixed = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), value)
    return apply(layer["out"], mixed.reshape(rows, length, width))


def transformer(size, causal, outputs):
    """Return parameters and loss of a transformer."""
    parameters = {
        "words": drawn(size["words"], size["width"]),
        "positions": drawn(size["length"], size["width"]),
        "layers": [layer_weights(size) for _ in range(size["layers"])],
        "norm": scale_and_shift(size["width"]) if causal else (),
        "head": linear(size["width"], outputs),
    }

    def loss(p, words, label):
        x = p["words"][words] + p["positions"]
        for layer in p["layers"]:
            first, second = layer["norms"]
            if causal:
                x = x + attend(layer, normed(first, x), size["heads"], causal)
                x = x + widen(layer, normed(second, x))
            else:
                x = normed(first, x + attend(layer, x, size["heads"], causal))
                x = normed(second, x + widen(layer, x))
        x = normed(p["norm"], x) if causal else x.mean(1)
        return classes(apply(p["head"], x), label)

    return parameters, loss


def gpt():
    """Return four causal layers."""
    drawn_words = RNG.randint(0, GPT["words"], (2, GPT["rows"], GPT["length"]))
    return (*transformer(GPT, True, GPT["words"]), tuple(drawn_words), "adam")


def encoder():
    """Return two bidirectional layers."""
    rows = ENCODER["rows"]
    words = RNG.randint(0, ENCODER["words"], (rows, ENCODER["length"]))
    return (*transformer(ENCODER, False, 10), (words, RNG.randint(0, 10, (rows,))), "adam")


def text_cnn():
    """Return convolutions over words and their maxima over time."""
    size, count = TEXT, TEXT["channels"]

    def loss(p, words, label):
        x = p["words"][words][:, None]
        features = [
            jax.nn.relu(biased_conv(layer, x, padding="VALID")).max((2, 3))
            for layer in p["windows"]
        ]
        return classes(apply(p["head"], jnp.concatenate(features, 1)), label)

    parameters = {
        "words": drawn(size["words"], size["width"]),
        "windows": [biased_weights(1, count, n, size["width"]) for n in size["windows"]],
        "head": linear(len(size["windows"]) * count, 10),
    }
    words = RNG.randint(0, size["words"], (size["rows"], size["length"]))
    return parameters, loss, (words, RNG.randint(0, 10, (size["rows"],))), "adam"


def vgg():
    """Return stacked convolutions with pooling."""
    stages, wide = [], 3
    for channels, count in VGG_STAGES:
        stages.append([biased_weights(w, channels, 3, 3) for w in [wide, channels][:count]])
        wide = channels

    def loss(p, x, y):
        for stage in p["stages"]:
            for layer in stage:
                x = jax.nn.relu(biased_conv(layer, x))
            x = pooled(x, lax.max, -jnp.inf)
        return classes(apply(p["head"], x.reshape(x.shape[0], -1)), y)

    return {"stages": stages, "head": linear(wide, 10)}, loss, images(32, 3, 32, 32), "momentum"


def densenet():
    """Return dense blocks."""
    blocks, wide = [], 24
    for number in range(3):
        layers = []
        for _ in range(4):
            layers.append((scale_and_shift(wide), drawn(GROWTH, wide, 3, 3)))
            wide += GROWTH
        block = {"layers": layers, "norm": scale_and_shift(wide)}
        if number < 2:
            block["narrow"] = drawn(wide // 2, wide, 1, 1)
            wide //= 2
        blocks.append(block)

    def loss(p, x, y):
        x = conv(x, p["stem"])
        for block in p["blocks"]:
            for norm, weight in block["layers"]:
                inner = conv(jax.nn.relu(batch_normed(norm, x)), weight)
                x = jnp.concatenate([x, inner], 1)
            x = jax.nn.relu(batch_normed(block["norm"], x))
            if "narrow" in block:
                x = pooled(conv(x, block["narrow"]), lax.add, 0.0) / 4
        return classes(apply(p["head"], x.mean((2, 3))), y)

    parameters = {"stem": drawn(24, 3, 3, 3), "blocks": blocks, "head": linear(wide, 10)}
    return parameters, loss, images(32, 3, 32, 32), "momentum"


def mixer():
    """Return an MLP-mixer."""
    width, tokens, patch = MIXER["width"], MIXER["tokens"], MIXER["patch"]
    layers = [
        {
            "norms": (scale_and_shift(width), scale_and_shift(width)),
            "across": widened(tokens),
            "along": widened(width),
        }
        for _ in range(MIXER["layers"])
    ]

    def loss(p, x, y):
        x = biased_conv(p["patches"], x, stride=patch, padding="VALID")
        x = jnp.swapaxes(x.reshape(x.shape[0], width, tokens), 1, 2)
        for layer in p["layers"]:
            first, second = layer["norms"]
            across = widen(layer["across"], jnp.swapaxes(normed(first, x), 1, 2))
            x = x + jnp.swapaxes(across, 1, 2)
            x = x + widen(layer["along"], normed(second, x))
        return classes(apply(p["head"], normed(p["norm"], x).mean(1)), y)

    parameters = {
        "patches": biased_weights(3, width, patch, patch),
        "layers": layers,
        "norm": scale_and_shift(width),
        "head": linear(width, 10),
    }
    return parameters, loss, images(32, 3, 32, 32), "adam"


def wide_deep():
    """Return categories in tables of width 1, beside layers over wider ones."""
    rows, dense, width = WIDE_DEEP["rows"], WIDE_DEEP["dense"], WIDE_DEEP["width"]
    sizes = (len(TABLES) * width + dense, *WIDE_DEEP["layers"], 1)

    def loss(p, inputs, label):
        ids, numbers = inputs
        x = [table[ids[:, k]] for k, table in enumerate(p["deep"])]
        x = jnp.concatenate([*x, numbers], 1)
        for layer in p["layers"][:-1]:
            x = jax.nn.relu(apply(layer, x))
        scores = apply(p["layers"][-1], x) + apply(p["linear"], numbers)
        scores += sum(table[ids[:, k]] for k, table in enumerate(p["wide"]))
        return jnp.mean(jax.nn.softplus(scores) - label * scores)

    parameters = {
        "wide": [drawn(height, 1) for height in TABLES],
        "deep": [drawn(height, width) for height in TABLES],
        "layers": [linear(i, o) for i, o in pairwise(sizes)],
        "linear": linear(dense, 1),
    }
    ids = np.stack([RNG.randint(0, height, rows) for height in TABLES], 1)
    inputs = ids, RNG.randn(rows, dense).astype("float32")
    return parameters, loss, (inputs, RNG.randint(0, 2, (rows, 1)).astype("float32")), "adam"


def twice(layers, x):
    """Return two convolutions of a U-Net."""
    for layer in layers:
        x = jax.nn.relu(conv_bn(layer, x))
    return x


def unet():
    """Return a U-Net that goes up by nearest neighbours."""
    stages, rows, side = UNET["stages"], UNET["rows"], UNET["side"]
    pairs = list(pairwise(stages))[::-1]

    def two(wide, channels):
        return [conv_bn_weights(wide, channels, 3), conv_bn_weights(channels, channels, 3)]

    def loss(p, x, y):
        skips = []
        for k, layers in enumerate(p["down"]):
            x = twice(layers, pooled(x, lax.max, -jnp.inf) if k else x)
            skips.append(x)
        for layers, skip in zip(p["up"], skips[-2::-1], strict=True):
            x = jnp.repeat(jnp.repeat(x, 2, 2), 2, 3)
            x = twice(layers, jnp.concatenate([skip, x], 1))
        return classes(jnp.moveaxis(biased_conv(p["head"], x), 1, -1), y)

    parameters = {
        "down": [two(w, c) for w, c in zip((3, *stages), stages, strict=False)],
        "up": [two(upper + lower, upper) for upper, lower in pairs],
        "head": biased_weights(stages[0], UNET["classes"], 1, 1),
    }
    pixels = RNG.randn(rows, 3, side, side).astype("float32")
    return (
        parameters,
        loss,
        (pixels, RNG.randint(0, UNET["classes"], (rows, side, side))),
        "momentum",
    )


def convnext_block(p, x):
    """Return a depthwise 7x7 convolution, a norm and two products over channels, beside their input."""
    inner = jnp.moveaxis(biased_conv(p["deep"], x, groups=x.shape[1]), 1, -1)
    return x + jnp.moveaxis(widen(p, normed(p["norm"], inner)) * p["scale"], -1, 1)


def convnext():
    """Return ConvNeXt's blocks."""
    stages, wide = [], 3
    for channels, count in CONVNEXT_STAGES:
        blocks = [
            {
                "deep": biased_weights(1, channels, 7, 7),
                "norm": scale_and_shift(channels),
                "scale": np.full(channels, 0.1, "float32"),
                **widened(channels),
            }
            for _ in range(count)
        ]
        stages.append({"narrow": biased_weights(wide, channels, 2, 2), "blocks": blocks})
        wide = channels

    def loss(p, x, y):
        for stage in p["stages"]:
            x = biased_conv(stage["narrow"], x, stride=2, padding="VALID")
            for block in stage["blocks"]:
                x = convnext_block(block, x)
        return classes(apply(p["head"], normed(p["norm"], x.mean((2, 3)))), y)

    parameters = {"stages": stages, "norm": scale_and_shift(wide), "head": linear(wide, 10)}
    return parameters, loss, images(32, 3, 32, 32), "adam"


def signals():
    """Return dilated convolutions along signals."""
    stages, wide, window = [], 2, SIGNAL["window"]
    for channels, dilations in SIGNAL_STAGES:
        widths = (wide, *[channels] * len(dilations))
        stages.append([(drawn(channels, w, 1, window), scale_and_shift(channels)) for w in widths])
        wide = channels

    def along(layer, x, stride, dilation):
        weight, norm = layer
        side = (window - 1) // 2 * dilation
        out = lax.conv_general_dilated(
            x,
            weight,
            (1, stride),
            [(0, 0), (side, side)],
            rhs_dilation=(1, dilation),
            dimension_numbers=("NCHW", "OIHW", "NCHW"),
        )
        return jax.nn.relu(batch_normed(norm, out))

    def loss(p, x, y):
        for (first, *others), (_, dilations) in zip(p["stages"], SIGNAL_STAGES, strict=True):
            x = along(first, x, 4, 1)
            for layer, dilation in zip(others, dilations, strict=True):
                x = x + along(layer, x, 1, dilation)
        return classes(apply(p["head"], x.mean((2, 3))), y)

    batch = images(SIGNAL["rows"], 2, 1, SIGNAL["length"])
    return {"stages": stages, "head": linear(wide, 10)}, loss, batch, "momentum"


MODELS = {
    made.__name__: made
    for made in (
        *(fit, mlp, lenet, resnet18, gpt, mobilenet, encoder),
        *(text_cnn, vgg, densenet, mixer),
        *(wide_deep, unet, convnext, signals),
    )
}
