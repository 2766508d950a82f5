"""What this process can compute: which ops have a kernel on which back end."""

from __future__ import annotations

from functools import cache

from ..graph import ops as _ops  # noqa: F401 - fills the table of declarations
from ..graph.ops.collective import COLLECTIVES
from ..graph.ops.registry import OPS
from . import kernels as _kernels  # noqa: F401 - fills the table of kernels
from .kernels.registry import BACK_ENDS, has_kernel


@cache
def capabilities() -> dict[str, frozenset[str]]:
    """Return the op types that each back end can run (collectives run on every back end)."""
    return {
        back_end: frozenset(op for op in OPS if has_kernel(op, back_end)) | COLLECTIVES
        for back_end in BACK_ENDS
    }
