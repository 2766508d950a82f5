"""Which libraries compute, and what is said where there are none."""

from __future__ import annotations

import contextlib
import logging

import pytest

import rowlock.fluid as fluid
from rowlock.executor.gang.local import launch_threads
from rowlock.executor.kernels.back_ends import ALL_LIBRARIES, BFLOAT16_PRODUCTS
from rowlock.executor.kernels.capabilities import capabilities, common, installed, versions
from rowlock.executor.replica.orders import Versions, pack
from rowlock.executor.replica.replica import Replica
from rowlock.strategies.cluster import ClusterConfig


def test_only_libraries_that_all_have_in_one_version_are_used() -> None:
    assert common([{"onednn": "3.2", "llvm": "1"}, {"onednn": "3.2"}]) == {"onednn": "3.2"}
    assert common([{"onednn": "3.2"}, {"onednn": "3.4"}]) == {}
    assert set(installed()) <= {*ALL_LIBRARIES, BFLOAT16_PRODUCTS}


def test_replicas_that_differ_are_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(launch_threads(fluid.cpu_places(3), ClusterConfig())) as gang:
        assert gang.libraries() == versions().keys()
        assert not caplog.records
    reports = [{"numpy": "2.3, a"}, {"numpy": "2.3, b", "onednn": "3.9 avx2"}, {"numpy": "2.3, a"}]
    monkeypatch.setattr(
        Replica, "on_libraries", lambda self, *_: pack(Versions(reports[self.rank]))
    )
    with contextlib.closing(launch_threads(fluid.cpu_places(3), ClusterConfig())) as gang:
        assert gang.libraries() == frozenset()
    assert caplog.messages == [
        "Replicas differ in their libraries. numpy can differ in its last bits: 2.3, a (replica 0 on this "
        "host, 2 on this host); 2.3, b (replica 1 on this host). onednn is not used: missing (replica 0 on "
        "this host, 2 on this host); 3.9 avx2 (replica 1 on this host). Install the same versions on all "
        "hosts, and let replicas run on processors of one kind (ClusterConfig.nodes, node_labels)."
    ]


def test_one_line_says_that_numpy_computes_everything(caplog: pytest.LogCaptureFixture) -> None:
    capabilities.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            able = capabilities(frozenset())
    assert set(able) == {"numpy", "cupy"}
    (record,) = caplog.records
    assert "'.[cpu]'" in record.message
