"""Draws the inputs of a case in op_cases.json: NumPy alone, so that Python 3.7 and ours get the same."""

import numpy as np


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


def digest(array):
    """Return up to six elements of an array and, if it has more, its sum and a weighted sum."""
    flat = array.astype("float64").ravel()
    if flat.size <= 8:
        return flat.tolist()
    at = np.linspace(0, flat.size - 1, 5).astype(int)
    with np.errstate(invalid="ignore"):
        return flat[at].tolist() + [flat.mean(), (flat * weights(flat.shape, 3)).mean()]
