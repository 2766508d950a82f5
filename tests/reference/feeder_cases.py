"""Samples that DataFeeder is given, under Python 3.7 with Paddle 1.8.5 and here."""

import numpy as np


def cases():
    """Return (shape, dtype, lod_level, samples) by name; each sample is the value of one variable."""
    r = np.random.RandomState(3)
    rows = [r.randn(n, 3).astype("float32") for n in (2, 0, 1)]
    return {
        "rows": ([None, 4], "float32", 0, [r.randn(4).tolist() for _ in range(3)]),
        "flat images": (
            [None, 1, 2, 2],
            "float32",
            0,
            [r.randn(4).astype("float32") for _ in range(2)],
        ),
        "images": ([None, 4], "float64", 0, [r.randn(2, 2) for _ in range(2)]),
        "numbers": ([None, 1], "int64", 0, [5, 6, 7]),
        "numbers without axis": ([None], "int64", 0, [5, 6, 7]),
        "fixed batch": ([2, 3], "int32", 0, [(1, 2, 3), (4, 5, 6)]),
        "open sizes": ([None, None, 2], "float32", 0, [np.ones((3, 2)), np.zeros((3, 2))]),
        "open in the middle": ([2, -1, 2], "float32", 0, [np.arange(6), np.arange(6)]),
        "words": ([None, 1], "int64", 1, [[1, 2, 3], [4], [5, 6]]),
        "words with axis": ([None, 1], "int64", 1, [[[1], [2]], [[3]]]),
        "words without axis": ([None], "int64", 1, [[1, 2, 3], [4]]),
        "empty sequence": ([None, 1], "int64", 1, [[], [4], []]),
        "rows in sequences": ([None, 3], "float32", 1, [rows[0], rows[2]]),
        "rows and an empty sequence": ([None, 3], "float32", 1, [row.tolist() for row in rows]),
        "sentences": ([None, 1], "int64", 2, [[[1, 2], [3]], [[4, 5, 6]], [[7], [], [8]]]),
        "rows in sentences": ([None, 3], "float32", 2, [[rows[0], rows[2]], [rows[0]]]),
        "an empty paragraph": ([None, 1], "int64", 2, [[], [[1, 2]]]),
        "paragraphs": (
            [None, 2],
            "float32",
            3,
            [[[[(1, 2)], []], [[(3, 4), (5, 6)]]], [[[(7, 8)]]]],
        ),
    }
