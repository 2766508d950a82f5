"""Cases of the ops that take parts of tensors, or give their elements another place."""

from tables import *  # noqa: F403


@case("crop", 8)
def crop(p):
    shape, part, start = p.of(
        ([4, 5], [2, 3], [1, 2]), ([3, 4, 2], [3, 1, 2], [0, 2, 0]), ([2, 3, 2, 4], [1, 2, 2, 3], [1, 1, 0, 0])
    )
    inputs, attrs = {"X": normal(shape, p.any("float32", "float32", "float64"))}, {"offsets": start}
    if p.of(0, 1):
        inputs["Y"] = normal(part, inputs["X"][1])
    else:
        attrs["shape"] = part
    if p.any(0, 0, 1):
        attrs.pop("offsets")
        inputs["Offsets"] = values(start)
    return inputs, attrs


@case("crop_tensor", 10)
def crop_tensor(p):
    shape, part, start = p.of(
        ([4, 5], [2, 3], [1, 2]), ([3, 4, 2], [3, 1, 2], [0, 2, 0]), ([5], [-1], [2]), ([2, 3, 2, 4], [1, -1, 2, 3], [1, 1, 0, 0])
    )
    inputs, attrs = {"X": normal(shape, p.any(*ALL))}, {"offsets": start, "shape": part}
    how = p.of(0, 1, 2)
    if how == 1:
        inputs["Offsets"] = values(start)
    elif how == 2:
        inputs["OffsetsTensor"] = scalars(start)
    if p.any(0, 1) and -1 not in part:
        inputs.update({"Shape": values(part)} if p.any(0, 1) else {"ShapeTensor": scalars(part)})
    return inputs, attrs


@case("pad_constant_like", 10)
def pad_constant_like(p):
    large, small = p.of(([4, 5], [2, 3]), ([3, 4, 2], [3, 1, 2]), ([5], [5]))
    dtype = p.of("float32", "float64", "int64")
    return {"X": normal(large, dtype), "Y": normal(small, dtype)}, {"pad_value": p.of(0.0, 1.5)}


@case("partial_concat", 8)
def partial_concat(p):
    count, dtype = p.of(1, 2, 3), p.any(*ALL)
    start, length = p.of((0, -1), (1, 2), (-3, -1), (-2, 1), (3, 2))
    return {"X": [normal([3, 5], dtype) for _ in range(count)]}, {"start_index": start, "length": length}


@case("partial_sum", 6)
def partial_sum(p):  # columns counted from the end are not cut off in Paddle
    count, dtype = p.of(1, 2, 3), p.any(*ALL)
    start, length = p.of((0, -1), (1, 2), (3, 2))
    return {"X": [normal([3, 5], dtype) for _ in range(count)]}, {"start_index": start, "length": length}


@case("flip", 6)
def flip(p):
    shape, dims = p.of(([3, 4], [0]), ([3, 4], [-1]), ([2, 3, 2], [0, 2]), ([5], [0]))
    return {"X": normal(shape, p.any(*ALL))}, {"dims": dims}


@case("roll", 8)
def roll(p):
    shape, shifts, dims = p.of(
        ([3, 4], [1], [0]), ([3, 4], [-5], [-1]), ([2, 3, 4], [1, 2], [0, 2]), ([5], [7], [0]), ([2, 3, 2], [1, 1], [1, 1])
    )
    return {"X": normal(shape, p.any(*ALL))}, {"shifts": shifts, "dims": dims}


@case("unbind", 6)
def unbind(p):
    shape, axis = p.of(([2, 3], 0), ([2, 3], 1), ([2, 3, 2], -1), ([3, 1, 2], -2))
    return {"X": normal(shape, p.any(*ALL))}, {"axis": axis}


OUTPUT_COUNT["unbind"] = lambda attrs, arrays: arrays["X"][0].shape[attrs["axis"]]


@case("space_to_depth", 6)
def space_to_depth(p):
    shape, size = p.of(([2, 8, 2, 4], 2), ([1, 4, 4, 4], 2), ([1, 9, 3, 6], 3))
    return {"X": normal(shape, p.of(*ALL))}, {"blocksize": size}


@case("shuffle_channel", 4)
def shuffle_channel(p):  # of float64 Paddle copies half the bytes
    shape, group = p.of(([2, 6, 2, 3], 2), ([1, 6, 1, 2], 3), ([2, 4, 2, 2], 1))
    return {"X": normal(shape)}, {"group": group}


@case("pixel_shuffle", 4)
def pixel_shuffle(p):
    shape, factor = p.of(([2, 8, 2, 3], 2), ([1, 9, 1, 2], 3), ([2, 3, 2, 2], 1))
    return {"X": normal(shape, p.any(*FLOATS))}, {"upscale_factor": factor}


@case("temporal_shift", 8)
def temporal_shift(p):
    shape, frames = p.of(([6, 5, 2, 1], 3), ([4, 4, 1, 2], 2), ([3, 8, 1, 1], 1), ([4, 10, 2, 2], 4))
    return {"X": normal(shape, p.any(*FLOATS))}, {"seg_num": frames, "shift_ratio": p.of(0.25, 0.1, 0.4)}


@case("eye", 6)
def eye(p):
    return {}, {"num_rows": p.of(3, 1, 4), "num_columns": p.of(-1, 2, 5), "dtype": p.any(FP32, FP64, INT32, INT64)}


@case("diag", 4)
def diag(p):
    return {"Diagonal": normal([p.of(4, 1, 3)], p.of(*ALL))}, {}


NO_GRADIENT.update({"diag", "diag_embed"})


@case("diag_embed", 8)
def diag_embed(p):
    shape, dims = p.of(([3], (-2, -1)), ([2, 3], (0, 2)), ([2, 3], (-1, 0)), ([2, 1, 3], (1, -1)))
    attrs = {"offset": p.of(0, 1, -2), "dim1": dims[0], "dim2": dims[1]}
    return {"Input": normal(shape, p.any(*ALL))}, attrs


@case("trace", 8)
def trace(p):  # with dim1 behind dim2 Paddle 1.8.5 takes the diagonal on the other side, 2.x the one asked for
    shape, dims = p.of(([3, 4], (-2, -1)), ([3, 4], (0, 1)), ([3, 2, 4], (0, 2)), ([4, 3, 3, 2], (1, -2)))
    return {"Input": normal(shape, p.any(*ALL))}, {"offset": p.of(0, 1, -1), "dim1": dims[0], "dim2": dims[1]}


@case("tril_triu", 8)
def tril_triu(p):
    attrs = {"diagonal": p.of(0, 1, -2, 5), "lower": p.any(True, False)}
    return {"X": normal(p.of([3, 4], [4, 3], [2, 3, 3]), p.any(*ALL))}, attrs
