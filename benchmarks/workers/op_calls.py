"""What both contenders of ``op_sweep.py`` do with a case: time calls, and tell what they gave."""

import time

import numpy as np


def called(step, count, digest, **extras):
    """Return an answer: the seconds of calls and digests of the arrays that the last one gave.

    Seconds are the thread's own: what else runs on the core does not count, and neither library starts threads.
    """
    seconds = []
    for _ in range(count):
        start = time.thread_time()
        results = step()
        seconds.append(time.thread_time() - start)
    return {"seconds": seconds, "digest": [digest_of(digest(one)) for one in results], **extras}


def digest_of(array):
    """Return an array's size, sum of absolutes, and sum with weights that tell places apart."""
    flat = np.asarray(array, np.float64).ravel()
    weights = np.cos(np.arange(flat.size) * 0.7)
    return [flat.size, float(np.abs(flat).sum()), float(flat @ weights)]


def seed_of(shape):
    """Return the gradient of a result with which the slopes begin."""
    size = int(np.prod(shape))
    return np.cos(np.arange(size, dtype=np.float32) * np.float32(0.3)).reshape(shape)
