"""``paddle.save`` and ``paddle.load``: values by name, such as a layer's state, in one file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..executor.saving.files import reading, replacing
from ..graph.program.formats.state_reader import read_arrays
from ..graph.program.formats.state_writer import write_state
from ..graph.program.variable import Variable
from ..strategies.errors import InvalidArgument, InvalidType, Unsupported


def _path(path: Any, function: str, configs: Mapping[str, Any]) -> str:
    if configs:
        raise Unsupported(f"{function}: {', '.join(configs)} is not built: leave it out.")
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidType(f"{function} takes the path of a file, got {path!r}.")
    if not os.path.basename(os.fspath(path)):
        raise InvalidArgument(f"{function}: the path must be folder/name, got {path!r}.")
    return os.fspath(path)


def save(obj: Mapping[str, Any], path: Any, protocol: int = 4, **configs: Any) -> None:
    """Write values by name (``layer.state_dict()``, or arrays) as Paddle does, all or nothing.

    Variables are written with their values in the global scope.

    Raises:
        InvalidType: ``obj`` is no dict of values by name.
        NotInitialized: a variable holds no value.
        Unsupported: ``configs`` are given.
    """
    file_path = _path(path, "save", configs)
    if not isinstance(obj, Mapping) or not all(isinstance(name, str) for name in obj):
        raise InvalidType(f"save takes a dict of values by name, got {type(obj).__name__}.")
    arrays = {
        name: np.asarray(value.get_value() if isinstance(value, Variable) else value)
        for name, value in obj.items()
    }
    for name, array in arrays.items():
        if array.dtype == object or array.dtype.kind in "US":
            raise InvalidType(f"save: under {name!r} is no array of numbers: {obj[name]!r}.")
    with replacing() as files, files.open(file_path) as file:
        write_state(file, arrays, protocol)


def load(path: Any, **configs: Any) -> dict[str, np.ndarray]:
    """Return the arrays by name that :func:`save` wrote, or Paddle (``.pdparams``, ``.pdopt``).

    Raises:
        DamagedFile: the file is damaged, or holds something else.
        MissingFile: there is no such file.
        Unsupported: ``configs`` other than ``return_numpy`` are given.
    """
    configs.pop("return_numpy", None)
    file_path = _path(path, "load", configs)
    with reading(file_path) as file:
        return read_arrays(file, repr(file_path))
