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
