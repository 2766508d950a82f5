"""How many threads kernels have."""

from __future__ import annotations

import os

import pytest

from rowlock.executor.host.cores import openmp_threads, working_threads


def test_kernels_keep_no_more_threads_busy_than_openmp_starts_or_cores_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2})
    with openmp_threads(1):
        assert working_threads() == 1
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {5})
    with openmp_threads(2):
        assert working_threads() == 1
