"""Deep gradient compression: which elements of a place's momentum are sent, and what stays."""

from __future__ import annotations

import numpy as np

from ....graph.ops.dgc import DGC, Dgc, elements_sent
from ...device.device import Device
from ..registry import Step, kernel


@kernel(DGC, on=("numpy",))
def dgc(dev: Device, a: Dgc) -> Step:
    """Send the largest elements of the gradients that were kept back, each with its momentum: algorithm 4.

    What is sent is forgotten here (momentum factor masking). Before compression begins, and at a sparsity of 0,
    all of the momentum is sent and kept: the sum over the places is that of plain momentum.
    """
    decay, size = a.share * a.regular_coeff, a.grad.size
    grad, sent = (dev.scratch(a.grad.shape, a.grad.dtype) for _ in range(2))

    def compress() -> None:
        np.copyto(grad, a.grad)
        if a.regular_type:
            np.add(grad, decay * (np.sign(a.param) if a.regular_type == 1 else a.param), out=grad)
        count = elements_sent(vars(a), int(a.current_step.reshape(-1)[0]), size)
        whole = count is None or count >= size
        if a.use_nesterov and not whole:
            np.add(a.u, grad, out=sent)
            np.multiply(sent, a.m, out=a.u_out)
        else:
            np.multiply(a.u, a.m, out=a.u_out)
            np.add(a.u_out, grad, out=a.u_out)
        np.copyto(a.v_out, a.v)
        if whole:
            np.multiply(a.u_out, a.m if a.use_nesterov else 1.0, out=a.grad_out)
            np.add(a.grad_out, grad if a.use_nesterov else 0.0, out=a.grad_out)
            return
        np.add(a.v_out, a.u_out, out=a.v_out)
        if a.use_nesterov:
            np.add(a.v_out, grad, out=a.v_out)
        np.absolute(a.v_out, out=sent)
        assert count is not None
        chosen = np.argpartition(sent.reshape(-1), size - count)[size - count :]
        a.grad_out[...] = 0
        a.grad_out.flat[chosen] = a.v_out.flat[chosen]
        a.v_out.flat[chosen] = a.u_out.flat[chosen] = 0

    return compress
