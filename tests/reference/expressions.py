"""Expressions of layers that Paddle and Rowlock compute alike; read by Python 3.7, too.

``FLUID`` are Paddle 1.8.5's, ``PADDLE`` 3.3.1's. In an expression stand ``x`` and ``y`` (float32, fed, rows
unknown), ``w`` (float32, 3 by 4), ``v`` (4 numbers), ``i`` (int64, fed), ``k`` (int64, 3 by 1), ``b``
(booleans, 3 by 4), ``im`` (an image), ``np``, and the modules: ``L`` is fluid.layers, ``F`` nn.functional.
"""

import numpy as np

SHAPES = {
    "x": ([-1, 4], "float32"),
    "y": ([-1, 4], "float32"),
    "w": ([3, 4], "float32"),
    "v": ([4], "float32"),
    "i": ([-1, 4], "int64"),
    "k": ([3, 1], "int64"),
    "b": ([3, 4], "bool"),
    "im": ([1, 4, 4, 4], "float32"),
}

OPERATORS = """
x + 1 | 1 + x | x - 2.5 | 2.5 - x | x * 3 | 3 * x | x / 4 | 4 / x | x ** 2 | 2 ** x | -x
x + y | x - y | x * y | x / y | w ** 2.0 | x + w | w - v | i + 3 | 3 - i | i * 2 | i / 2 | i // 2 | i % 3
i // i | i % i | 7 / w | 1 / i | x + i | i + x | w * i | x / i
x == y | x != 1 | x < 2 | x <= y | x > 0.5 | x >= y | i == 2 | i != i | 2 > x | 1 >= i
x.astype('int32') | i.astype('float32') | b.astype('int64')
w[0] | w[-1] | w[1:3] | w[:, 1] | w[0, 1] | w[1:, :-1] | w[:, 1:1000] | w[::-1] | w[::-1, ::-1] | w[-2:]
x[0] | x[:2] | x[:, -1] | x[1:2, 0] | w[0:3:2] | w[:, 3:0:-1] | w[0:3:2, 1] | im[0, 1:3, :, ::-1]
"""

FLUID_LAYERS = """
L.argsort(w)[0] | L.argsort(w)[1] | L.argsort(w, axis=0, descending=True)[0] | L.cumsum(w)
L.cumsum(w, axis=0, exclusive=True) | L.cumsum(w, axis=1, reverse=True) | L.gather_nd(w, k)
L.scatter(w, L.fill_constant([1], 'int64', 2), w[0:1]) | L.has_inf(w) | L.has_nan(w) | L.isfinite(w)
L.scatter(w, L.fill_constant([1], 'int64', 2), w[0:1], overwrite=False)
L.pad(w, [0, 1, 1, 2], pad_value=0.5) | L.pad2d(im, [1, 0, 0, 2], 'reflect') | L.pad2d(im, [1, 1, 1, 1])
L.pad2d(im, [1, 0, 0, 1], 'edge') | L.reduce_all(b) | L.reduce_all(b, dim=0) | L.reduce_any(b, dim=[1], keep_dim=True)
L.elementwise_mod(i, i) | L.elementwise_floordiv(i, i) | L.autoincreased_step_counter() | L.reverse(w, [0, 1])
L.strided_slice(w, [0, 1], [0, 3], [3, 0], [2, -1]) | L.unstack(w)[1] | L.size(w) | L.rank(im) | L.sum(w)
L.sum([w, w]) | L.is_empty(w) | L.less_than(x, y) | L.less_than(x, y, force_cpu=True)
L.less_equal(x, y, cond=L.create_tensor('bool')) | L.logical_not(b) | L.logical_xor(b, b, out=L.create_tensor('bool'))
L.logical_and(b, b) | L.equal(i, i) | L.not_equal(i, i)
L.Normal(0.5, 2.0).log_prob(w) | L.Normal(0.5, 2.0).entropy() | L.Normal(0.5, 2.0).kl_divergence(L.Normal(1.0, 3.0))
L.Uniform(-9.0, 9.0).log_prob(w) | L.Uniform(0.5, 2.0).entropy() | L.Categorical(w).entropy()
L.Categorical(w).kl_divergence(L.Categorical(w * 2))
"""

PADDLE = ""


def listed(text):
    return [one.strip() for line in text.strip().splitlines() for one in line.split(" | ")]


FLUID = listed(OPERATORS) + listed(FLUID_LAYERS)


def arrays():
    """Return what is fed; no two elements are alike, and x and y agree in some."""
    rng = np.random.RandomState(7)
    x = np.round(rng.uniform(0.25, 3.0, (3, 4)), 3).astype("float32")
    y = np.where(rng.rand(3, 4) < 0.5, x, x[::-1]).astype("float32")
    w = np.round(rng.uniform(-2.0, 2.0, (3, 4)), 3).astype("float32")
    i = rng.randint(1, 9, (3, 4)).astype("int64")
    return {
        "x": x,
        "y": y,
        "w": w,
        "v": w[1] * 2,
        "i": i,
        "k": np.array([[2], [0], [1]], "int64"),
        "b": w > 0,
        "im": np.arange(64, dtype="float32").reshape(1, 4, 4, 4) / 8,
    }


def build(expressions, block, names):
    """Append each expression's ops to ``block``; return (expression, op types, variable)."""
    built = []
    for expression in expressions:
        before = [id(op) for op in block.ops]
        made = eval(expression, dict(names))
        added = [op.type for op in block.ops if id(op) not in before]
        built.append((expression, added, made))
    return built
