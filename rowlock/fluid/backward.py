"""``fluid.backward``."""

from ..graph.backward import append_backward, gradients

__all__ = ["append_backward", "gradients"]
