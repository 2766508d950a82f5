"""Cases of the ops that pick elements by index, add at coordinates, and unfold windows."""

from tables import *  # noqa: F403


@case("index_select", 8)
def index_select(p):
    shape, dim = p.of(([5, 3], 0), ([2, 4, 3], 1), ([2, 4, 3], -1), ([4], 0))
    dtype = p.any(*ALL)
    index = integers([p.any(1, 3, 6)], shape[dim], p.any("int64", "int32"))
    return {"X": normal(shape, dtype), "Index": index}, {"dim": dim}


@case("index_sample", 6)
def index_sample(p):
    rows, width, picked = p.of((3, 5, 4), (2, 1, 3), (4, 6, 1))
    index = integers([rows, picked], width, p.any("int64", "int32"))
    return {"X": normal([rows, width], p.any(*ALL)), "Index": index}, {}


@case("multiplex", 6)
def multiplex(p):
    shape, count = p.of(([4, 3], 2), ([2, 2, 2], 3), ([5, 1], 4))
    dtype = p.any(*ALL)
    return {"Ids": integers([shape[0], 1], count, "int32"), "X": [normal(shape, dtype) for _ in range(count)]}, {}


@case("scatter_nd_add", 8)
def scatter_nd_add(p):
    shape, index = p.of(([3, 4], [5, 2]), ([3, 2, 2], [2, 4, 1]), ([4, 3, 2], [3, 2]), ([6], [7, 1]))
    dtype, high = p.any("float32", "float64", "int64"), min(shape[: index[-1]])
    updates = [*index[:-1], *shape[index[-1] :]]
    inputs = {"X": normal(shape, dtype), "Updates": normal(updates, dtype)}
    return {**inputs, "Index": integers(index, high, p.any("int64", "int32"))}, {}


@case("shard_index", 6)
def shard_index(p):
    count, shards = p.of((20, 2), (7, 3), (5, 5))
    attrs = {"index_num": count, "nshards": shards, "shard_id": p.any(0, 1), "ignore_value": p.of(-1, -7)}
    return {"X": integers(p.any([6, 1], [4, 1]), count, p.any("int64", "int32"))}, attrs


@case("unfold", 8)
def unfold(p):
    shape, kernel, dilations = p.of(
        ([2, 2, 4, 3], [2, 2], [1, 1]), ([1, 2, 5, 6], [3, 2], [1, 3]), ([1, 1, 6, 5], [2, 3], [2, 1])
    )
    attrs = {"kernel_sizes": kernel, "dilations": dilations, "strides": p.of([1, 1], [2, 1], [1, 3])}
    attrs["paddings"] = p.any([0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 2, 3])
    return {"X": normal(shape, p.any(*FLOATS))}, attrs
