"""Cases of the ops that draw: shapes and types, since the numbers are Rowlock's own."""

from tables import *  # noqa: F403

KINDS = (FP32, FP64)


@case("seed", 3)
def seed(p):
    return {}, {"seed": p.of(7, 123, 0)}


@case("randint", 6)
def randint(p):
    inputs, shape = {}, p.of([2, 3], [4], [1, 2, 2])
    attrs = {"low": p.any(0, -5), "high": p.any(1, 100), "dtype": p.of(INT32, INT64), "seed": p.any(0, 3)}
    how = p.of(0, 1, 2)
    if how == 1:
        inputs["ShapeTensor"] = values(shape)
    elif how == 2:
        inputs["ShapeTensorList"] = scalars(shape)
    return inputs, {**attrs, "shape": shape}


@case("randperm", 4)
def randperm(p):
    return {}, {"n": p.of(5, 1, 9), "dtype": p.of(INT64, INT32, FP32, FP64), "seed": p.any(0, 3)}


@case("uniform_random_batch_size_like gaussian_random_batch_size_like", 6)
def batch_size_like(p):
    shape, source, target = p.of(([-1, 3], 0, 0), ([3, -1], 0, 1), ([-1, 2, 2], 1, 0))
    attrs = {"shape": shape, "input_dim_idx": source, "output_dim_idx": target, "dtype": p.any(*KINDS)}
    return {"Input": normal([4, 5], p.any(*FLOATS))}, {**attrs, "seed": p.any(0, 3)}


@case("sampling_id", 4)
def sampling_id(p):
    return {"X": positive(p.of([3, 4], [1, 2]), p.of("float32", "float64"))}, {"seed": p.any(0, 3)}


@case("random_crop", 4)
def random_crop(p):
    shape, part = p.of(([3, 5, 4], [2, 3]), ([2, 3, 6], [4]), ([4, 3], [2]))
    return {"X": normal(shape, p.any("float32", "int32")), "Seed": integers([1], 9)}, {"shape": part}


@case("shuffle_batch", 4)
def shuffle_batch(p):
    return {"X": normal(p.of([5, 3], [2, 2, 3]), p.any("float32", "int64")), "Seed": integers([1], 9)}, {}


NO_GRADIENT.update({"random_crop", "sampling_id", "shuffle_batch"})
NO_GRADIENT.update({"uniform_random_batch_size_like", "gaussian_random_batch_size_like"})
