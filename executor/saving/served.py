"""Files that a parameter server writes when a trainer asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...graph.program.formats.tensors import write_tensor
from .files import inside, replacing


def save_arrays(folder: str, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write each array to a file of its name in a folder, as ``save_vars`` does; all of them, or none.

    Raises:
        InvalidValue: a file would lie outside the folder.
    """
    with replacing() as files:
        for name, array in arrays.items():
            with files.open(inside(folder, name)) as file:
                write_tensor(file, array, [])
