"""Ops of PyTorch, forward and gradient, one at a time: a contender of ``op_sweep.py``."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.op_draws import named
from benchmarks.workers.op_calls import called, seed_of
from benchmarks.workers.serve import serve


def build(name):
    """Return a call of the case, and what it computes."""
    case = named(name)
    tensors, leaves = [], []
    for slot, arrays in case.draw().items():
        for array in arrays:
            tensor = torch.from_numpy(array)
            tensors.append(tensor)
            if slot in case.slopes:
                leaves.append(tensor.requires_grad_())
    seeds = []

    def step():
        result = case.call(torch, *tensors)
        outs = result if isinstance(result, tuple) else (result,)
        seeds.extend(torch.from_numpy(seed_of(out.shape)) for out in outs[len(seeds) :])
        slopes = torch.autograd.grad(outs, leaves, seeds) if leaves else ()
        # As ``backward()`` leaves them to an optimizer: in the order of their tensor, views written out.
        return *outs, *(slope.contiguous() for slope in slopes)

    return step


def run(step, count):
    """Return the seconds of calls, and digests of what the last one gave."""
    return called(step, count, lambda tensor: tensor.detach().numpy())


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve(lambda: {"python": sys.version.split()[0], "torch": torch.__version__}, build, run)
