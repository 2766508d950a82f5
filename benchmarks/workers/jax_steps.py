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
from jax.sharding import Mesh, NamedSharding, PartitionSpec

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.workers.jax_nets import MODELS
from benchmarks.workers.serve import serve


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
    values = list(jax.device_put((parameters, state), everywhere))
    update = {"sgd": sgd, "momentum": momentum, "adam": adam}[optimizer]

    def train(p, s, x, y):
        value, gradients = jax.value_and_grad(loss)(p, x, y)
        return (value, *update(p, gradients, s))

    jitted = jax.jit(train, donate_argnums=(0, 1))

    def step():
        arrays = jax.device_put(batch, halves)  # the feed comes from the host in every step
        value, values[0], values[1] = jitted(*values, *arrays)
        return float(value)

    step.weights = sum(int(np.size(weight)) for weight in jax.tree.leaves(parameters))
    return step


if __name__ == "__main__":
    serve(lambda: {"python": sys.version.split()[0], "jax": jax.__version__}, build)
