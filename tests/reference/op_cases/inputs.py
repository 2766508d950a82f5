"""Draws the inputs of a case and weighs its outputs: NumPy alone, so that Python 3.7 and ours get the same."""

import numpy as np

SIDE = {  # outputs that no gradient comes from
    "batch_norm": ("MeanOut", "VarianceOut", "SavedMean", "SavedVariance"),
    "center_loss": ("CentersOut", "SampleCenterDiff"),
    "cos_sim": ("XNorm", "YNorm"),
    "cross_entropy2": ("MatchX",),
    "data_norm": ("Means", "Scales"),
    "filter_by_instag": ("LossWeight",),
    "fused_elemwise_activation": ("IntermediateOut",),
    "fusion_squared_mat_sub": ("SquaredX", "SquaredY", "SquaredXY"),
    "group_norm": ("Mean", "Variance"),
    "gru": ("BatchGate", "BatchResetHiddenPrev", "BatchHidden"),
    "gru_unit": ("Gate", "ResetHiddenPrev"),
    "hierarchical_sigmoid": ("PreOut", "W_Out"),
    "huber_loss": ("Residual",),
    "instance_norm": ("SavedMean", "SavedVariance"),
    "layer_norm": ("Mean", "Variance"),
    "linear_chain_crf": ("Alpha", "EmissionExps", "TransitionExps"),
    "lrn": ("MidOut",),
    "lstm": ("Cell", "BatchGate", "BatchCellPreAct"),  # Paddle has no gradient of Cell
    "lstmp": ("Cell", "BatchGate", "BatchCellPreAct", "BatchHidden"),
    "margin_rank_loss": ("Activated",),
    "modified_huber_loss": ("IntermediateVal",),
    "nce": ("SampleLogits",),
    "nll_loss": ("Total_weight",),
    "norm": ("Norm",),
    "sample_logits": ("Probabilities", "LogitsDim", "LabelsDim"),
    "smooth_l1_loss": ("Diff",),
    "softmax_with_cross_entropy": ("Softmax",),
    "squared_l2_distance": ("sub_result",),
    "warpctc": ("WarpCTCGrad",),
}


def draw(described, seed):
    """Return {slot: [arrays]} for {slot: [[shape, dtype, how, *numbers]]}; how is

    ``normal``, ``uniform`` low high, ``integers`` low high, ``distinct`` (a shuffled range), ``unique`` high
    (integers without repetition) or ``values`` numbers.
    """
    rng = np.random.RandomState(seed)
    return {slot: [_array(rng, *one) for one in described[slot]] for slot in sorted(described)}


def _array(rng, shape, dtype, how, *numbers):
    size = int(np.prod(shape))
    if how == "values":
        flat = np.array(numbers[0])
    elif how == "integers":
        flat = rng.randint(numbers[0], numbers[1], size)
    elif how == "unique":
        flat = rng.permutation(numbers[0])[:size]
    elif how == "distinct":
        flat = rng.permutation(size) * 0.25 - size * 0.1
    elif how == "uniform":
        flat = rng.uniform(numbers[0], numbers[1], size)
    else:
        flat = rng.standard_normal(size)
    return flat.astype(dtype).reshape(shape)


def weights(shape, number):
    """Return the gradient that flows into an output: known numbers between -1 and 1, no two alike."""
    size = int(np.prod(shape))
    return np.cos(np.arange(size) * 1.7 + number).reshape(shape)


def weighted(op_type, outputs):
    """Return {slot: [weights]} of the sum over {slot: [arrays]} whose gradient a case has.

    A slot counts where it holds floats and is not one of the SIDE; outputs are numbered by slot and place.
    """
    counted = [
        (slot, array)
        for slot in sorted(outputs)
        if slot not in SIDE.get(op_type, ())
        for array in outputs[slot]
        if array is not None and array.dtype.kind == "f"
    ]
    factors = {}
    for number, (slot, array) in enumerate(counted):
        factors.setdefault(slot, []).append(weights(array.shape, number).astype(array.dtype))
    return factors


def digest(array):
    """Return up to six elements of an array and, if it has more, its sum and a weighted sum."""
    flat = array.astype("float64").ravel()
    if flat.size <= 8:
        return flat.tolist()
    at = np.linspace(0, flat.size - 1, 5).astype(int)
    with np.errstate(invalid="ignore"):
        return flat[at].tolist() + [flat.mean(), (flat * weights(flat.shape, 3)).mean()]
