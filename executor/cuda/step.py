"""What puts work on a GPU: a call of a step, and the extents of a kernel's launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Step = Callable[[], Any]
Dims = tuple[int, int, int]
