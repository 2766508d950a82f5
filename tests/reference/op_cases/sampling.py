"""Cases of images read at positions."""

from tables import FLOATS, case, normal, values


@case("affine_channel", 8)
def affine_channel(p):
    dtype, layout = p.of(*FLOATS), p.of("NCHW", "NHWC")
    shape = p.any([2, 3, 4, 2], [3, 3, 2, 3]) if layout == "NCHW" else [2, 4, 5, 3]
    inputs = {"X": normal(shape, dtype), "Scale": normal([3], dtype), "Bias": normal([3], dtype)}
    return inputs, {"data_layout": layout}


@case("affine_grid", 6)
def affine_grid(p):
    sizes = [2, 3, p.any(2, 4, 5), p.any(3, 2, 6)]  # of 1 Paddle makes nan
    theta = normal([2, 2, 3], p.of(*FLOATS))
    if p.of(True, False):
        return {"Theta": theta}, {"output_shape": sizes, "use_cudnn": False}
    return {"Theta": theta, "OutputShape": values(sizes)}, {"use_cudnn": False}


@case("grid_sampler", 8)
def grid_sampler(p):
    dtype = p.of(*FLOATS)
    image = [p.any(3, 4), p.any(5, 2)]
    grid = [[2] + image + [2], dtype, "uniform", -1.4, 1.4]
    return {"X": normal([2, 3] + image, dtype), "Grid": grid}, {"use_cudnn": False}


@case("deformable_conv_v1", 8)
def deformable_conv_v1(p):
    dtype, groups, parts = p.any(*FLOATS), p.of(1, 2), p.of(1, 2)
    strides, paddings, dilations = p.any([1, 1], [2, 1]), p.any([0, 0], [1, 2]), p.any([1, 1], [1, 2])
    kernel, image = p.any([3, 3], [2, 3], [1, 1]), [6, 7]
    sizes = [
        (n + 2 * pad - d * (k - 1) - 1) // s + 1
        for n, pad, d, k, s in zip(image, paddings, dilations, kernel, strides)
    ]
    taps = parts * kernel[0] * kernel[1]
    inputs = {
        "Input": normal([2, 4] + image, dtype),
        "Filter": normal([4, 4 // groups] + kernel, dtype),
        "Offset": [[2, 2 * taps] + sizes, dtype, "uniform", -1.6, 1.6],
    }
    return inputs, {
        "strides": strides,
        "paddings": paddings,
        "dilations": dilations,
        "groups": groups,
        "deformable_groups": parts,
        "im2col_step": 1,  # of more Paddle mixes images up, and of more than there are it makes zeros
    }


@case("deformable_conv", 8)
def deformable_conv(p):
    inputs, attrs = deformable_conv_v1(p)
    (n, doubled, *image), dtype = inputs["Offset"][:2]
    inputs["Mask"] = [[n, doubled // 2] + image, dtype, "uniform", 0.0, 1.0]
    return inputs, attrs
