"""Cases of convolutions of volumes, and of transposed ones."""

from tables import *  # noqa: F403


def factors(p, dims, transposed):
    layout = p.of(False, True)
    groups = p.any(1, 1, 2, 3)
    channels, filters = groups * p.any(1, 2), groups * p.any(1, 2)
    sizes = [p.any(3, 4, 5) + (0 if transposed else 2) for _ in range(dims)]
    kernel = [p.any(1, 2, 3) for _ in range(dims)]
    image = [2] + sizes + [channels] if layout else [2, channels] + sizes
    dtype = p.any("float32", "float32", "float64")
    attrs = {
        "strides": [p.any(1, 1, 2) for _ in range(dims)],
        "paddings": p.any([0] * dims, [1] * dims, [1, 0, 1][:dims], [1, 0, 0, 1, 0, 1][: 2 * dims]),
        "padding_algorithm": p.any("EXPLICIT", "EXPLICIT", "EXPLICIT", "SAME", "VALID"),
        "dilations": p.any([1] * dims, [1] * dims, [2] * dims, [1, 2, 1][:dims]),
        "groups": groups,
        "data_format": ("NHWC" if dims == 2 or transposed else "NDHWC") if layout else "NCHW",
    }
    shape = [channels, filters // groups] if transposed else [filters, channels // groups]
    return {"Input": normal(image, dtype), "Filter": normal(shape + kernel, dtype)}, attrs


@case("conv3d", 40)
def conv3d(p):
    inputs, attrs = factors(p, 3, False)
    if attrs["data_format"] == "NCHW":
        attrs["data_format"] = "NCDHW"
    return inputs, attrs


def wider(p, inputs, attrs):
    """Ask for a result of up to a stride more, where its size follows from the paddings."""
    image = inputs["Input"][0]
    sizes = image[1:-1] if attrs["data_format"] == "NHWC" else image[2:]
    dims, pads = len(sizes), attrs["paddings"]
    if attrs["padding_algorithm"] == "SAME" or not p.any(0, 1):
        return
    if attrs["padding_algorithm"] == "VALID":
        pads = [0] * dims
    sums = [2 * n for n in pads] if len(pads) == dims else [sum(pads[2 * i : 2 * i + 2]) for i in range(dims)]
    attrs["output_size"] = [
        (sizes[i] - 1) * attrs["strides"][i]
        - sums[i]
        + (inputs["Filter"][0][2 + i] - 1) * attrs["dilations"][i]
        + 1
        + p.any(0, attrs["strides"][i] - 1)
        for i in range(dims)
    ]


@case("conv2d_transpose", 50)
def conv2d_transpose(p):
    inputs, attrs = factors(p, 2, True)
    wider(p, inputs, attrs)
    return inputs, attrs


@case("conv3d_transpose", 36)
def conv3d_transpose(p):
    inputs, attrs = factors(p, 3, True)
    wider(p, inputs, attrs)
    return inputs, attrs


@case("depthwise_conv2d_transpose", 30)
def depthwise(p):
    inputs, attrs = factors(p, 2, True)
    image = inputs["Input"][0]
    channels = image[-1] if attrs["data_format"] == "NHWC" else image[1]
    inputs["Filter"][0] = [channels, 1] + inputs["Filter"][0][2:]
    attrs["groups"] = channels
    wider(p, inputs, attrs)
    return inputs, attrs
