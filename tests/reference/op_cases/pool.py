"""Cases of pools of volumes, of those that tell places, and of their reverse."""

from tables import *  # noqa: F403


def pool_attrs(p, dims):
    return {
        "ksize": [p.any(1, 2, 3) for _ in range(dims)],
        "strides": [p.any(1, 2, 3) for _ in range(dims)],
        "paddings": p.any([0] * dims, [1] * dims, [1, 0, 1][:dims]),
        "global_pooling": p.any(False, False, False, False, True),
    }


@case("pool3d", 50)
def pool3d(p):
    layout = p.of("NCDHW", "NDHWC")
    sizes = [p.any(4, 5, 6) for _ in range(3)]
    image = [2] + sizes + [2] if layout == "NDHWC" else [2, 2] + sizes
    attrs = pool_attrs(p, 3)
    attrs["ksize"] = [p.any(2, 3) for _ in range(3)]
    if p.any(0, 0, 1):
        attrs["paddings"] = p.any([1, 0, 0, 1, 1, 1], [0, 1, 1, 1, 0, 0])
    attrs.update(
        pooling_type=p.of("max", "avg"),
        padding_algorithm=p.any("EXPLICIT", "EXPLICIT", "EXPLICIT", "SAME", "VALID"),
        exclusive=p.any(True, False),
        ceil_mode=p.any(False, False, True),
        adaptive=p.any(False, False, False, True),
        data_format=layout,
    )
    if attrs["ceil_mode"]:  # else a window may lie in the padding alone
        attrs["paddings"] = [0, 0, 0]
        attrs["strides"] = [min(pair) for pair in zip(attrs["strides"], attrs["ksize"])]
    if attrs["pooling_type"] == "max":
        attrs["adaptive"] = False  # Paddle leaves that to max_pool3d_with_index
    return {"X": distinct(image, p.any("float32", "float32", "float64"))}, attrs


def indexed(name, count, dims):
    def function(p):
        attrs = pool_attrs(p, dims)
        attrs["ksize"] = [p.any(2, 3) for _ in range(dims)]
        attrs["adaptive"] = p.of(False, False, True)
        image = [2, 2] + [p.any(4, 5, 6) for _ in range(dims)]
        return {"X": distinct(image, p.any("float32", "float32", "float64"))}, attrs

    CASES[name] = (count, function)


indexed("max_pool2d_with_index", 30, 2)
indexed("max_pool3d_with_index", 24, 3)


@case("unpool", 24)
def unpool(p):
    k, strides = [p.any(2, 3), p.any(2, 3)], p.any([2, 2], [2, 3], [1, 2])
    paddings = p.any([0, 0], [0, 0], [1, 0])
    high, wide = p.any(2, 3), p.any(2, 3)
    room = [(high - 1) * strides[0] - 2 * paddings[0] + k[0], (wide - 1) * strides[1] - 2 * paddings[1] + k[1]]
    shape = [1, 1, high, wide]  # no place twice
    attrs = {"ksize": k, "strides": strides, "paddings": paddings, "unpooling_type": "max"}
    indices = [shape, "int32", "unique", room[0] * room[1]]
    return {"X": normal(shape, p.any("float32", "float32", "float64")), "Indices": indices}, attrs


@case("spp", 16)
def spp(p):
    shape = [2, 3, p.any(7, 8, 11), p.any(8, 6, 13)]
    attrs = {"pyramid_height": p.of(1, 2, 3), "pooling_type": p.any("max", "avg")}
    return {"X": distinct(shape, p.any("float32", "float32", "float64"))}, attrs
