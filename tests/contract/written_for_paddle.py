"""A function in a module that imports Paddle, as those of libraries do."""

import numpy as np
import paddle.fluid as fluid  # type: ignore[import-not-found]


def largest_first(rows):  # type: ignore[no-untyped-def]
    """Return the rows whose sum is above 0, the largest first, as one sequence."""
    rows = np.array(rows)
    rows = rows[np.argsort(-rows.sum(1), kind="stable")]
    rows = rows[rows.sum(1) > 0]
    tensor = fluid.core.LoDTensor()
    tensor.set(rows, fluid.CPUPlace())
    tensor.set_lod([[0, len(rows)]])
    return tensor
