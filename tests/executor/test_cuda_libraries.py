"""Where libraries of CUDA are found, and what must be loaded before them."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowlock.executor.cuda.libraries import library


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is loaded, in order, where wheels of NVIDIA lie in ``tmp_path`` alone."""
    order: list[str] = []
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(ctypes, "CDLL", order.append)
    library.cache_clear()
    yield order
    library.cache_clear()


def test_what_nvrtc_opens_by_its_name_is_loaded_before(tmp_path: Path, loaded: list[str]) -> None:
    """The wheel of CUDA 13.0 has no run path, so its own folder is none in which the system would look."""
    folder = tmp_path / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True)
    for name in ("nvrtc.so.13", "nvrtc.alt.so.13", "nvrtc-builtins.so.13.0", "cublasLt.so.13"):
        (folder / f"lib{name}").touch()
    library("nvrtc")
    assert loaded == [str(folder / f"lib{n}") for n in ("nvrtc-builtins.so.13.0", "nvrtc.so.13")]
    library("cublasLt")
    assert loaded[2:] == [str(folder / "libcublasLt.so.13")]


def test_the_driver_is_asked_for_by_its_name(loaded: list[str]) -> None:
    """The loader knows LD_LIBRARY_PATH; it alone may lead to a driver that is mounted into an image."""
    library("cuda")
    assert loaded == ["libcuda.so.1"]
