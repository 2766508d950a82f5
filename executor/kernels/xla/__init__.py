"""XLA, through jax: a region of the graph as one compiled program. jax is imported when a region is bound."""

from __future__ import annotations

from . import arrays, fused, nn, program, updates  # noqa: F401 - they fill the table of lowerings
