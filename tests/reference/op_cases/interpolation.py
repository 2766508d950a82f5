"""Cases of interpolation: every method, sizes and scale, corners, orders of images."""

from tables import FLOATS, case, normal, scalars, values


def _sizes(p, names, image):
    how = p.of("attributes", "scale", "OutSize", "SizeTensor", "larger", "one")
    sizes = [p.any(2, 3, 5, 7, 9) for _ in names]
    if how == "scale":
        return {}, {"scale": p.any(2.0, 1.5, 0.6)}
    if how == "larger":
        sizes = [2 * n for n in image]
    if how == "one":
        sizes = [1] + sizes[1:]
    attrs = dict(zip(names, sizes))
    if how == "OutSize":
        return {"OutSize": values(sizes)}, {}
    if how == "SizeTensor":
        return {"SizeTensor": scalars(sizes)}, {}
    return {}, attrs


def _case(p, method, names):
    image = [p.any(3, 4, 6) for _ in names]
    layout = p.of("NCHW", "NHWC")
    shape = [2, 3] + image if layout == "NCHW" else [2] + image + [3]
    inputs, attrs = _sizes(p, names, image)
    attrs.update(
        data_layout=layout, interp_method=method, align_corners=p.of(True, False), align_mode=p.of(1, 0)
    )
    return dict(inputs, X=normal(shape, p.of(*FLOATS))), attrs


@case("nearest_interp", 12)
def nearest(p):
    return _case(p, "nearest", ["out_h", "out_w"])


@case("bilinear_interp", 16)
def bilinear(p):
    return _case(p, "bilinear", ["out_h", "out_w"])


@case("bicubic_interp", 12)
def bicubic(p):
    return _case(p, "bicubic", ["out_h", "out_w"])


@case("trilinear_interp", 12)
def trilinear(p):
    return _case(p, "trilinear", ["out_d", "out_h", "out_w"])
