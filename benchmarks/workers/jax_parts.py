"""What nets in JAX are made of: weights, layers, batches."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

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


def widened(width):
    """Return the parameters of :func:`widen`."""
    return {"wide": linear(width, 4 * width), "narrow": linear(4 * width, width)}


def widen(layer, x):
    """Return two linear layers with GELU between them."""
    return apply(layer["narrow"], jax.nn.gelu(apply(layer["wide"], x), approximate=False))


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


def biased_conv(layer, x, **how):
    """Return a convolution with a bias."""
    weight, bias = layer
    return conv(x, weight, **how) + bias[:, None, None]


def biased_weights(wide, channels, *size):
    """Return the parameters of :func:`biased_conv`."""
    # the variance, as ReLU halves it
    scale = np.float32((2 / (wide * np.prod(size))) ** 0.5 / 0.05)
    return scale * drawn(channels, wide, *size), np.zeros(channels, "float32")


def pooled(x, combine, start, size=2):
    """Return a pool of windows that do not overlap."""
    window = (1, 1, size, size)
    return lax.reduce_window(x, start, combine, window, window, "VALID")


def batch_normed(layer, x):
    """Return batch normalization by the batch's own statistics."""
    scale, shift = layer
    mean = x.mean((0, 2, 3), keepdims=True)
    variance = jnp.square(x - mean).mean((0, 2, 3), keepdims=True)
    return (x - mean) * (lax.rsqrt(variance + 1e-5) * scale[:, None, None]) + shift[:, None, None]


def conv_bn(layer, x, stride=1, groups=1):
    """Return convolution and batch normalization."""
    weight, norm = layer
    return batch_normed(norm, conv(x, weight, stride, groups=groups))


def conv_bn_weights(wide, channels, size, groups=1):
    """Return the parameters of :func:`conv_bn`."""
    return drawn(channels, wide // groups, size, size), scale_and_shift(channels)


def images(rows, *shape):
    """Return random images and labels."""
    return RNG.randn(rows, *shape).astype("float32"), RNG.randint(0, 10, (rows,))


def normed(layer, x):
    """Return layer normalization."""
    scale, shift = layer
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale + shift
