"""A contender of ``benchmarks/gpu.py``: JAX on one device, the whole step one jitted function."""

import os
import sys
from pathlib import Path

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others have the GPU in turn
sys.path.insert(0, str(Path(__file__).parents[2]))

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.models import MODELS
from benchmarks.sizes import weights
from benchmarks.workers import jax_parts, jax_steps
from benchmarks.workers.gpu_serve import Settings, Steps, parted, serve_steps

TOLD = Settings()
DEVICE = jax.devices("gpu" if TOLD.on_gpu else "cpu")[0]


def conv(x, weight, stride):
    """Return a convolution of images [N, H, W, C]; filters are [O, I, H, W]."""
    padding = [((side - 1) // 2, (side - 1) // 2) for side in weight.shape[2:]]
    order = ("NHWC", "OIHW", "NHWC")
    return lax.conv_general_dilated(x, weight, (stride, stride), padding, dimension_numbers=order)


def conv_bn(p, name, x, stride=1, relu=True):
    """Return convolution, batch norm by the batch's statistics in float32, and perhaps ReLU."""
    out = conv(x, p[name].astype(x.dtype), stride)
    wide = out.astype(jnp.float32)
    mean = wide.mean((0, 1, 2))
    variance = jnp.square(wide).mean((0, 1, 2)) - jnp.square(mean)
    factor = lax.rsqrt(variance + 1e-5) * p[name + ".scale"]
    out = (wide * factor + (p[name + ".shift"] - mean * factor)).astype(x.dtype)
    return jax.nn.relu(out) if relu else out


def resnet50(size, low):
    """Return parameters and loss."""
    parameters = weights("resnet50", size)
    for name in list(parameters):
        if name != "head":
            channels = parameters[name].shape[0]
            parameters[name + ".scale"] = np.ones(channels, "float32")
            parameters[name + ".shift"] = np.zeros(channels, "float32")
    parameters["head.bias"] = np.zeros(size.classes, "float32")

    def loss(p, image, label):
        x = jnp.transpose(image, (0, 2, 3, 1)).astype(low)
        x = conv_bn(p, "stem", x, 2)
        x = lax.reduce_window(
            x, np.array(-np.inf, x.dtype), lax.max, (1, 3, 3, 1), (1, 2, 2, 1),
            [(0, 0), (1, 1), (1, 1), (0, 0)],
        )  # fmt: skip
        for stage, (_, count) in enumerate(size.blocks):
            for block in range(count):
                name = "{}.{}".format(stage, block)
                stride = 2 if stage and not block else 1
                inner = conv_bn(p, name + ".1", x)
                inner = conv_bn(p, name + ".2", inner, stride)
                inner = conv_bn(p, name + ".3", inner, relu=False)
                skip = name + ".0" in p
                x = jax.nn.relu(inner + (conv_bn(p, name + ".0", x, stride, False) if skip else x))
        x = x.mean((1, 2)).astype(low)
        scores = x @ p["head"].astype(low) + p["head.bias"].astype(low)
        return jax_parts.classes(scores.astype(jnp.float32), label[:, 0])

    return parameters, loss


def normed(p, name, x):
    """Return layer normalization, computed in float32."""
    layer = p[name + ".scale"], p[name + ".shift"]
    return jax_parts.normed(layer, x.astype(jnp.float32)).astype(x.dtype)


def linear(p, name, x):
    """Return a linear layer."""
    return x @ p[name].astype(x.dtype) + p[name + ".bias"].astype(x.dtype)


def gpt2(size, low):
    """Return parameters and loss."""
    parameters = weights("gpt2", size)
    for name in [name for name in parameters if name.startswith("layer")]:
        parameters[name + ".bias"] = np.zeros(parameters[name].shape[1], "float32")
    norms = ["layer{}.norm{}".format(k, i) for k in range(size.layers) for i in (1, 2)]
    for name in [*norms, "norm"]:
        parameters[name + ".scale"] = np.ones(size.width, "float32")
        parameters[name + ".shift"] = np.zeros(size.width, "float32")
    by_cudnn = TOLD.on_gpu and low == jnp.bfloat16

    def attend(p, name, x):
        rows, length, width = x.shape
        joint = linear(p, name + ".joint", x).reshape(rows, length, 3, size.heads, -1)
        query, key, value = jnp.moveaxis(joint, 2, 0)
        mixed = jax.nn.dot_product_attention(
            query, key, value, is_causal=True, implementation="cudnn" if by_cudnn else None
        )
        return linear(p, name + ".out", mixed.reshape(rows, length, width))

    def loss(p, words, label):
        x = (p["words_w"][words] + p["positions"]).astype(low)
        for k in range(size.layers):
            name = "layer{}".format(k)
            x = x + attend(p, name, normed(p, name + ".norm1", x))
            hidden = linear(p, name + ".wide", normed(p, name + ".norm2", x))
            x = x + linear(p, name + ".narrow", jax.nn.gelu(hidden, approximate=True))
        scores = normed(p, "norm", x) @ p["words_w"].astype(low).T
        return jax_parts.classes(scores.astype(jnp.float32), label[..., 0])

    return parameters, loss


def momentum(p, g, velocity):
    """Return updated parameters and velocity; weights decay."""
    velocity = jax.tree.map(lambda v, g, p: 0.9 * v + g + 5e-5 * p, velocity, g, p)
    return jax.tree.map(lambda p, v: p - 0.1 * v, p, velocity), velocity


def adamw(p, g, state):
    """Return updated parameters, moments and the step's number."""
    first, second, count = state
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, g)
    second = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, second, g)
    count = count + 1
    one, two = 1 - 0.9**count, 1 - 0.95**count

    def updated(p, m, v):
        return p * (1 - 6e-5) - 6e-4 * (m / one) / (jnp.sqrt(v / two) + 1e-8)

    return jax.tree.map(updated, p, first, second), (first, second, count)


def small(name):
    """Return parameters, loss, batches and optimizer of a small net, for one of its two places."""
    parameters, loss, batch, optimizer = jax_steps.MODELS[name]()
    zeros = jax.tree.map(np.zeros_like, parameters)
    state = {"sgd": (), "momentum": zeros, "adam": (zeros, zeros, np.float32(0))}[optimizer]
    half = jax.tree.map(lambda array: array[: len(array) // 2], batch)
    return parameters, loss, [half], state, getattr(jax_steps, optimizer)


def large(name, precision):
    """Return the same of a large model."""
    low = jnp.bfloat16 if precision == "bfloat16" else jnp.float32
    parameters, loss = (resnet50 if name == "resnet50" else gpt2)(TOLD.size(name), low)
    batches = [tuple(batch.values()) for batch in TOLD.batches(name)]
    zeros = {key: np.zeros_like(value) for key, value in parameters.items()}
    state = zeros if name == "resnet50" else (zeros, zeros, np.float32(0))
    return parameters, loss, batches, state, momentum if name == "resnet50" else adamw


def build(model):
    """Return the steps of a model."""
    name, precision = parted(model)
    jax.config.update(
        "jax_default_matmul_precision", "tensorfloat32" if precision == "tf32" else "highest"
    )
    parameters, loss, batches, state, rule = (
        small(name) if name in MODELS else large(name, precision)
    )
    values = list(jax.device_put((parameters, state), DEVICE))

    def train(p, s, x, y):
        value, gradients = jax.value_and_grad(loss)(p, x, y)
        return (value, *rule(p, gradients, s))

    jitted = jax.jit(train, donate_argnums=(0, 1))
    turn = iter(range(sys.maxsize))

    def begin():
        batch = jax.device_put(batches[next(turn) % len(batches)], DEVICE)
        value, values[0], values[1] = jitted(*values, *batch)
        return value

    return Steps(begin, float, memory)


def memory():
    """Return the most bytes that were in use."""
    stats = DEVICE.memory_stats() or {}
    return {"peak": stats["peak_bytes_in_use"]} if "peak_bytes_in_use" in stats else {}


def about():
    """Return versions, and which device."""
    versions = {"python": sys.version.split()[0], "jax": jax.__version__}
    return {**versions, "device": DEVICE.device_kind}


if __name__ == "__main__":
    serve_steps(about, build)
