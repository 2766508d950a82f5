"""Normalisation by sums over all data so far, which are parameters."""

from __future__ import annotations

from . import formula as f
from .operands import Array, Input, Operands, Output, named
from .registry import Op, define
from .samples import sample
from .shapes import Sized

_SUMS = ("BatchSize", "BatchSum", "BatchSquareSum")


class DataNorm(Operands):
    scale_w: Input | None = named("scale_w")
    bias: Input | None = named("bias")
    x: Input
    batch_size: Input
    batch_sum: Input
    batch_square_sum: Input
    y: Output
    means: Output
    scales: Output
    epsilon: float = 1e-4
    slot_dim: int = -1
    summary_decay_rate: float = 0.9999999
    enable_scale_and_shift: bool = False
    data_layout: str = "NCHW"
    sync_stats: bool = False
    use_mkldnn: bool = False


class DataNormGrad(DataNorm, reads="scale_w bias x means scales"):
    d_y: Input
    d_scale_w: Output | None = named("scale_w@GRAD")
    d_bias: Output | None = named("bias@GRAD")
    d_x: Output | None
    d_batch_size: Output | None
    d_batch_sum: Output | None
    d_batch_square_sum: Output | None


def _present(x: Array, slot_dim: int) -> Array:
    """Return 1 for rows of a slot whose first column is not 0, else 0: [N, slots, 1]."""
    first = x.reshape(x.shape[0], -1, slot_dim)[:, :, :1]
    return f.where(f.absolute(first) >= 1e-7, f.full(first.shape, 1, x.dtype), 0)


def data_norm(a: DataNorm) -> f.Results:
    """Y = (X - sum / size) sqrt(size / sum of squares), 0 where a slot's first column is."""
    means, scales = a.batch_sum / a.batch_size, f.sqrt(a.batch_size / a.batch_square_sum)
    y = (a.x - means) * scales
    if a.scale_w is not None and a.bias is not None:
        y = y * a.scale_w + a.bias
    if a.slot_dim > 0:
        y = (y.reshape(y.shape[0], -1, a.slot_dim) * _present(a.x, a.slot_dim)).reshape(a.x.shape)
    return {"y": y, "means": means, "scales": scales}


def data_norm_grad(a: DataNormGrad) -> f.Results:
    """What the optimizer takes for gradients of the sums are those of this batch.

    They are of all rows; with slots, their mean over the rows that have the slot.
    """
    mask = None
    d_y, centred = a.d_y, a.x - a.means
    sums = {"d_batch_sum": a.x, "d_batch_square_sum": centred * centred}
    count = f.full(a.means.shape, a.x.shape[0], a.x.dtype)
    batches = count
    if a.slot_dim > 0:
        mask = f.broadcast(
            _present(a.x, a.slot_dim), (a.x.shape[0], a.x.shape[1] // a.slot_dim, a.slot_dim)
        )
        mask = mask.reshape(a.x.shape)
        d_y, sums = d_y * mask, {name: value * mask for name, value in sums.items()}
        count = mask.sum(0)
        batches = f.minimum(count, 1)
    each = f.maximum(count, 1) if a.slot_dim > 0 else 1
    totals = {name: value.sum(0) / each for name, value in sums.items()}
    totals["d_batch_square_sum"] = totals["d_batch_square_sum"] + count * a.epsilon
    d_x = d_y * a.scales
    return {
        **totals,
        "d_batch_size": batches,
        "d_x": d_x if a.scale_w is None else d_x * a.scale_w,
        "d_scale_w": (d_y * centred * a.scales).sum(0),
        "d_bias": d_y.sum(0),
    }


_SAMPLE = "BatchSize 0.5:2.0 [4], BatchSum [4], BatchSquareSum 0.5:2.0 [4]"
_SHIFT = "scale_w [4], bias [4]"

define(
    "data_norm",
    DataNorm,
    Sized(
        "X [N C], BatchSize [C], BatchSum [C], BatchSquareSum [C], scale_w [C], bias [C] "
        "-> Y as X, Means [C], Scales [C]",
        "(scale_w is None) == (bias is None) == (not enable_scale_and_shift); "
        "scale_w and bias come together, with enable_scale_and_shift",
        "slot_dim <= 0 or C % slot_dim == 0; columns do not split in slots",
    ),
    formula=data_norm,
    samples=(
        sample("X [3 4]", _SAMPLE),
        sample("X [3 4]", _SAMPLE, _SHIFT, enable_scale_and_shift=True, slot_dim=2),
    ),
    slope=Op(
        "data_norm_grad",
        DataNormGrad,
        Sized(
            "X, Means, scale_w, bias -> X@GRAD as X, scale_w@GRAD as scale_w, bias@GRAD as bias, "
            + ", ".join(f"{slot}@GRAD as Means" for slot in _SUMS)
        ),
        formula=data_norm_grad,
    ),
)
