"""A contender: JAX, data-parallel over two host devices of one process, the whole step one jitted function."""

import os
import sys
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2 " + os.environ.get(
    "XLA_FLAGS", ""
)

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.models import ENCODER, GPT, RESIDUAL_STAGES, SEPARABLE_STAGES
from benchmarks.workers.serve import serve

RNG = np.random.RandomState(0)


def drawn(*shape):
    """Return small random weights."""
    return (0.05 * RNG.randn(*shape)).astype("float32")


def linear(inputs, outputs):
    """Return a weight and a bias."""
    return drawn(inputs, outputs), np.zeros(outputs, "float32")


def scale_and_shift(size):
    """Return what a normalization learns."""
    return np.ones(size, "float32"), np.zeros(size, "float32")


def apply(layer, x):
    """Return a linear layer's result."""
    weight, bias = layer
    return x @ weight + bias


def classes(scores, label):
    """Return the mean cross entropy."""
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(scores), label[..., None], -1))


def conv(x, weight, stride=1, padding="SAME", groups=1):
    """Return a convolution in NCHW."""
    if padding == "SAME":  # both sides alike, also where the stride is 2
        padding = [((size - 1) // 2, (size - 1) // 2) for size in weight.shape[2:]]
    return lax.conv_general_dilated(
        x,
        weight,
        (stride, stride),
        padding,
        dimension_numbers=("NCHW", "OIHW", "NCHW"),
        feature_group_count=groups,
    )


def conv_bn(layer, x, stride=1, groups=1):
    """Return convolution and batch normalization by the batch's own statistics."""
    weight, (scale, shift) = layer
    made = conv(x, weight, stride, groups=groups)
    mean = made.mean((0, 2, 3), keepdims=True)
    variance = jnp.square(made - mean).mean((0, 2, 3), keepdims=True)
    factor = lax.rsqrt(variance + 1e-5) * scale[:, None, None]
    return (made - mean) * factor + shift[:, None, None]


def conv_bn_weights(wide, channels, size, groups=1):
    """Return the parameters of :func:`conv_bn`."""
    return drawn(channels, wide // groups, size, size), scale_and_shift(channels)


def fit():
    """Return parameters, loss, batch and optimizer of the linear regression."""
    batch = RNG.randn(32, 13).astype("float32"), RNG.randn(32, 1).astype("float32")
    return linear(13, 1), lambda p, x, y: jnp.mean((apply(p, x) - y) ** 2), batch, "sgd"


def images(rows, *shape):
    """Return random images and labels."""
    return RNG.randn(rows, *shape).astype("float32"), RNG.randint(0, 10, (rows,))


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
        for weight, bias in p[:-1]:
            x = jax.nn.relu(conv(x, weight, 1, "VALID") + bias[:, None, None])
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        return classes(apply(p[-1], x.reshape(x.shape[0], -1)), y)

    convs = [(drawn(o, i, 5, 5), np.zeros(o, "float32")) for i, o in ((1, 20), (20, 50))]
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
        "wide": linear(width, 4 * width),
        "narrow": linear(4 * width, width),
        "norms": (scale_and_shift(width), scale_and_shift(width)),
    }


def normed(layer, x):
    """Return layer normalization."""
    scale, shift = layer
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale + shift


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


def widen(layer, x):
    """Return the feed-forward part."""
    return apply(layer["narrow"], jax.nn.gelu(apply(layer["wide"], x), approximate=False))


def transformer(size, causal, outputs):
    """Return parameters and loss of a transformer."""
    parameters = {
        "words": drawn(size["words"], size["width"]),
        "positions": drawn(size["length"], size["width"]),
        "layers": [layer_weights(size) for _ in range(size["layers"])],
        "norm": scale_and_shift(size["width"]),
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


MODELS = {made.__name__: made for made in (fit, mlp, lenet, resnet18, gpt, mobilenet, encoder)}


def sgd(p, g, state):
    """Return updated parameters."""
    return jax.tree.map(lambda p, g: p - 1e-3 * g, p, g), state


def momentum(p, g, state):
    """Return updated parameters and velocity."""
    state = jax.tree.map(lambda v, g: 0.9 * v + g, state, g)
    return jax.tree.map(lambda p, v: p - 1e-3 * v, p, state), state


def adam(p, g, state):
    """Return updated parameters, moments and the step's number."""
    first, second, count = state
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, g)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, g)
    count = count + 1
    rate = 1e-3 * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    p = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), p, first, second)
    return p, (first, second, count)


def build(name):
    """Return a step of a model: parameters on both devices, half of the batch on each."""
    parameters, loss, batch, optimizer = MODELS[name]()
    mesh = Mesh(np.array(jax.devices()[:2]), ("replica",))
    everywhere, halves = (
        NamedSharding(mesh, spec) for spec in (PartitionSpec(), PartitionSpec("replica"))
    )
    zeros = jax.tree.map(np.zeros_like, parameters)
    state = {"sgd": (), "momentum": zeros, "adam": (zeros, zeros, np.float32(0))}[optimizer]
    held = list(jax.device_put((parameters, state), everywhere))
    update = {"sgd": sgd, "momentum": momentum, "adam": adam}[optimizer]

    def train(p, s, x, y):
        value, gradients = jax.value_and_grad(loss)(p, x, y)
        return (value, *update(p, gradients, s))

    jitted = jax.jit(train, donate_argnums=(0, 1))

    def step():
        fed = jax.device_put(batch, halves)  # the feed comes from the host in every step
        value, held[0], held[1] = jitted(*held, *fed)
        return float(value)

    return step


if __name__ == "__main__":
    serve(lambda: {"python": sys.version.split()[0], "jax": jax.__version__}, build)
