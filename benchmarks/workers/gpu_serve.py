"""What contenders on a GPU share: steps that are begun ahead of their results, and how they are timed.

A worker is started with one JSON object: {"tiny": bool, "device": "gpu" or "cpu", "how": its own settings}.
Models are named "resnet50/bfloat16": precision is bfloat16, tf32 or float32. Small nets ("mlp") are float32.
"""

import json
import sys
import time

import numpy as np

from benchmarks.models import MODELS
from benchmarks.sizes import SIZES, TINY, feed
from benchmarks.workers.serve import serve

AHEAD = 2  # steps under way before the oldest is waited for
LOSSES = 6  # that are kept, of the first steps
BATCHES = 2


class Settings:
    """What the command line says."""

    def __init__(self):
        settings = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
        self.tiny = settings.get("tiny", False)
        self.on_gpu = settings.get("device", "gpu") == "gpu"
        self.how = settings.get("how", "")

    def size(self, name):
        """Return a large model's size."""
        return (TINY if self.tiny else SIZES)[name]

    def batches(self, name):
        """Return the batches that are fed in turn."""
        return [feed(name, self.size(name), k) for k in range(BATCHES)]


def parted(model):
    """Return the name of a model and its precision."""
    name, _, precision = model.partition("/")
    assert name in SIZES or name in MODELS, model
    return name, precision or "float32"


class Steps:
    """A model under way: ``begin()`` puts a step on the device and returns what ``loss_of`` waits for.

    ``declined()`` tells what a library could not compute. The first step binds, so ``first`` are its seconds.
    """

    def __init__(self, begin, loss_of=float, peak=lambda: {}, declined=list):
        self.begin, self.loss_of, self.peak, self.declined = begin, loss_of, peak, declined
        self.losses, self.first = [], 0.0

    def run(self, count):
        """Return the seconds a step took, what of them the host needed to begin it, and the last loss."""
        while len(self.losses) < LOSSES:
            began = time.perf_counter()
            self.losses.append(self.loss_of(self.begin()))
            self.first = self.first or time.perf_counter() - began
        under_way, host = [], []
        start = time.perf_counter()
        for _ in range(count):
            began = time.perf_counter()
            under_way.append(self.begin())
            host.append(time.perf_counter() - began)
            if len(under_way) > AHEAD:
                self.loss_of(under_way.pop(0))
        loss = [self.loss_of(one) for one in under_way][-1]
        seconds = (time.perf_counter() - start) / count
        return {
            "seconds": [seconds],
            "host": float(np.median(host)),
            "longest": max(host),
            "first": self.first,
            "loss": loss,
            "losses": self.losses,
            "memory": self.peak(),
            "declined": self.declined(),
        }


def serve_steps(about, build):
    """Do as told: ``build(model)`` returns Steps."""
    serve(about, build, lambda steps, count: steps.run(count))
