"""Which libraries compute, and what is said where there are none."""

from __future__ import annotations

import logging

import pytest

from rowlock.executor.kernels.back_ends import ALL_LIBRARIES, BFLOAT16_PRODUCTS
from rowlock.executor.kernels.capabilities import capabilities, common, installed


def test_only_libraries_that_all_have_in_one_version_are_used() -> None:
    assert common([{"onednn": "3.2", "numba": "1"}, {"onednn": "3.2"}]) == {"onednn"}
    assert common([{"onednn": "3.2"}, {"onednn": "3.4"}]) == frozenset()
    assert set(installed()) <= {*ALL_LIBRARIES, BFLOAT16_PRODUCTS}


def test_one_line_says_that_numpy_computes_everything(caplog: pytest.LogCaptureFixture) -> None:
    capabilities.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            able = capabilities(frozenset())
    assert set(able) == {"numpy", "cupy"}
    (record,) = caplog.records
    assert "'.[cpu]'" in record.message
