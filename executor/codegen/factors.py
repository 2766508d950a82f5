"""Factors of matrices as the array module finds them; a matrix without such, or a missing library, is told."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ...strategies.errors import InvalidValue, Unsupported
from ..device.device import Device


def factors(dev: Device, op: str, name: str, compute: Callable[[], Any]) -> Any:
    """Return what ``compute`` finds; ``name``: what a matrix may lack.

    Raises:
        InvalidValue: a matrix has none.
        Unsupported: CuPy does not find the library that computes them.
    """
    try:
        with _errors_told(dev):
            return compute()
    except np.linalg.LinAlgError as error:
        raise InvalidValue(f"{op}: a matrix has no {name}: {error}.") from None
    except ImportError as error:
        needs = "on a GPU needs cuSOLVER: pip install '.[gpu]' in Rowlock's folder"
        raise Unsupported(f"{op} {needs} ({error}).") from error


def _errors_told(dev: Device) -> contextlib.AbstractContextManager[Any]:
    """CuPy goes on with NaN unless it is asked to look."""
    if dev.runtime is None or dev.runtime.name != "cupy":
        return contextlib.nullcontext()
    errstate: Callable[..., contextlib.AbstractContextManager[Any]]
    errstate = importlib.import_module("cupyx").errstate
    return errstate(linalg="raise")
