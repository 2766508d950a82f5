"""Cases of products beside mul and matmul."""

from tables import *  # noqa: F403


@case("dot", 6)
def dot(p):
    shape, dtype = p.of([4], [3, 4]), p.of(*ALL)
    return {"X": normal(shape, dtype), "Y": normal(shape, dtype)}, {}


@case("bmm", 5)
def bmm(p):
    dtype = p.of("float32", "float64")
    count, rows, inner, columns = p.of(2, 1, 3), p.any(3, 1), p.any(4, 1), p.any(5, 2)
    return {"X": normal([count, rows, inner], dtype), "Y": normal([count, inner, columns], dtype)}, {}


@case("addmm", 6)
def addmm(p):
    dtype = p.any(*FLOATS)
    inputs = {"Input": normal(p.of([3, 5], [1, 5], [3, 1]), dtype), "X": normal([3, 4], dtype)}
    inputs["Y"] = normal([4, 5], dtype)
    return inputs, {"Alpha": p.any(1.0, 0.5, -2.0), "Beta": p.any(1.0, 3.0, 0.0)}


@case("kron", 8)
def kron(p):
    (x, y), dtype = p.of(([2, 3], [4, 2]), ([3], [2, 2, 2]), ([2, 2, 2], [2])), p.of(*ALL)
    return {"X": normal(x, dtype), "Y": normal(y, dtype)}, {}


@case("cross", 6)
def cross(p):
    shape, dim = p.of(([3, 4], 9), ([2, 3, 3], 9), ([3, 2, 3], 2), ([3, 3], 1))
    dtype = p.of(*ALL)
    return {"X": normal(shape, dtype), "Y": normal(shape, dtype)}, {"dim": dim}


@case("bilinear_tensor_product", 4)
def bilinear_tensor_product(p):
    dtype = p.any(*FLOATS)
    inputs = {"X": normal([3, 4], dtype), "Y": normal([3, 5], dtype), "Weight": normal([2, 4, 5], dtype)}
    if p.of(1, 0):
        inputs["Bias"] = normal([1, 2], dtype)
    return inputs, {}


@case("conv_shift", 4)
def conv_shift(p):
    width = p.of(5, 7, 3)
    return {"X": normal([2, width]), "Y": normal([2, p.any(1, 3)])}, {}


@case("fsp", 3)
def fsp(p):
    dtype = p.any(*FLOATS)
    return {"X": normal([2, 3, 2, 4], dtype), "Y": normal([2, p.of(3, 2), 2, 4], dtype)}, {}
