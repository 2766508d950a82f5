"""Cases of the ops that make numbers in a row, repeat tensors to a shape, and compare whole tensors."""

from tables import *  # noqa: F403


@case("fill", 6)
def fill(p):
    shape, dtype = p.of([2, 2], [4], [1, 4]), p.of(FP32, FP64, INT32, INT64, BOOL)
    return {}, {"shape": shape, "dtype": dtype, "value": p.any([1.0, 0.0, -3.0, 7.0], [0.5, 1.0, 2.0, 0.0])}


@case("fill_zeros_like2", 4)
def fill_zeros_like2(p):
    return {"X": normal(p.any(*SHAPES), p.any(*ALL))}, {"dtype": p.of(FP32, FP64, INT32, INT64)}


@case("size", 4)
def size(p):
    return {"Input": normal(p.of(*SHAPES), p.any(*ALL))}, {}


@case("is_empty", 4)
def is_empty(p):
    return {"X": normal(p.of([2, 0], [3], [2, 1]), p.any(*ALL))}, {}


@case("linspace", 8)
def linspace(p):
    dtype = p.any("float32", "float64")
    start, stop = p.of((0.0, 1.0), (3.0, -2.5), (1.5, 1.5))
    numbers = {"Start": values([start], dtype), "Stop": values([stop], dtype)}
    return {**numbers, "Num": values([p.of(1, 2, 5, 11)])}, {}


@case("range", 10)
def number_range(p):
    dtype = p.any(*ALL)
    whole = [(0, 5, 1), (5, -4, -2), (-3, 8, 3), (0, 1, 7)]
    numbers = p.of(*(whole if dtype.startswith("int") else [*whole, (0.0, 1.0, 0.1), (0.3, 0.9, 0.3)]))
    return {slot: values([n], dtype) for slot, n in zip(("Start", "End", "Step"), numbers)}, {}


@case("meshgrid", 6)
def meshgrid(p):
    sizes, dtype = p.of((2, 3), (4,), (2, 1, 3), (3, 2, 2, 2)), p.any(*ALL)
    return {"X": [normal([n], dtype) for n in sizes]}, {}


OUTPUT_COUNT["meshgrid"] = lambda attrs, arrays: len(arrays["X"])


@case("expand_as", 6)
def expand_as(p):
    small, large = p.of(([2, 3], [4, 3]), ([3], [6]), ([2, 1, 2], [2, 5, 4]), ([1, 3], [1, 3]))
    dtype = p.any(*ALL)
    return {"X": normal(small, dtype), "target_tensor": normal(large, dtype)}, {}


@case("allclose", 8)
def allclose(p):
    shape, dtype = p.any([3], [2, 2]), p.any("float32", "float64")
    how = p.of(("uniform", 0.5, 0.6), ("uniform", 0.5, 0.500001), ("normal",))
    attrs = {"rtol": p.any(1e-5, 0.3), "atol": p.of(1e-8, 0.1), "equal_nan": p.any(True, False)}
    return {"Input": [shape, dtype, *how], "Other": [shape, dtype, *how]}, attrs


@case("equal_reduce", 8)
def equal_reduce(p):
    x, y = p.of(([3], [3]), ([2, 2], [2, 2]), ([3], [4]), ([1], [1]))
    dtype = p.any(*ALL)
    return {"X": [x, dtype, "integers", 0, 2], "Y": [y, dtype, "integers", 0, p.of(2, 1)]}, {}
