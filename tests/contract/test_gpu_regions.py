"""Pools over regions on GPU places: a step is one graph, which serves regions however images share them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.executor.device.place import CPUPlace
from rowlock.fluid import layers as L
from rowlock.strategies.errors import ExecutionError
from tests.ops.gpu import needs_compiler
from tests.programs import on_places, own_programs

pytestmark = [needs_compiler, pytest.mark.usefixtures("one_gpu", "threads")]
SHARES = ([2, 3], [2, 3], [4, 1], [0, 5])


def trained(place: Any, odd_step: int = -1) -> tuple[list[Any], str]:
    """Return the losses of steps (or errors), and what explain() says; one step has an odd region."""
    with own_programs(5) as (main, startup):
        x = fluid.data("x", [None, 3, 12, 16])
        rois = fluid.data("rois", [None, 4], lod_level=1)
        features = L.conv2d(x, 4, 3, padding=1, act="tanh")
        parts = [
            L.roi_pool(features, rois, 2, 2, 0.5),
            L.roi_align(features, rois, 2, 2, 0.5, 2),
            L.prroi_pool(features, rois, 0.5, 2, 2),
            L.psroi_pool(features, rois, 1, 0.5, 2, 2),
        ]
        scores = L.fc(L.concat(parts, 1), 1)
        loss = L.mean(L.square(scores - 1.0))
        fluid.optimizer.Adam(0.05).minimize(loss)
    exe, scope, rng = fluid.Executor(place), fluid.Scope(), np.random.default_rng(1)
    exe.run(startup, scope=scope)
    program = on_places(main, [place], loss)
    results: list[Any] = []
    for step, counts in enumerate(SHARES):
        low = rng.uniform(0, 16, (5, 2))
        regions = np.concatenate([low, low + rng.uniform(1, 16, (5, 2))], 1).astype("float32")
        if step == odd_step:
            regions[3, 2] = np.nan
        feed = {
            "x": rng.standard_normal((2, 3, 12, 16)).astype("float32"),
            "rois": fluid.create_lod_tensor(regions, [counts], CPUPlace()),
        }
        try:
            results.append(float(exe.run(program, feed, [loss], scope=scope)[0][0]))
        except ExecutionError as error:
            results.append(error)
    return results, str(program.explain())


def test_a_gpu_learns_what_a_cpu_learns_and_a_step_is_one_graph() -> None:
    on_gpu, text = trained(fluid.CUDAPlace(0))
    on_cpu, _ = trained(CPUPlace())
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=2e-4)
    assert "the host takes part there" not in text
    assert "a step is 1 graph(s)" in text and ", 1 captured" in text


def test_a_region_that_is_not_finite_is_named_and_changes_nothing() -> None:
    results, _ = trained(fluid.CUDAPlace(0), odd_step=2)
    words = str(results[2])
    assert isinstance(results[2], ExecutionError) and "region 3 of ROIs is nan" in words
    assert "roi_" in words and __file__.rpartition("/")[2] in words
    assert isinstance(results[3], float)


def test_regions_of_more_images_than_there_are_are_refused(fresh_programs: None) -> None:
    x, rois = fluid.data("x", [None, 3, 4, 4]), fluid.data("rois", [None, 4], lod_level=1)
    out = L.roi_align(x, rois, 2, 2)
    regions = fluid.create_lod_tensor(np.ones((3, 4), "float32"), [[1, 1, 1]], CPUPlace())
    feed = {"x": np.ones((2, 3, 4, 4), "float32"), "rois": regions}
    words = r"roi_align .*ROIs has 3 sequences, and X has 2 images.*built at .*test_gpu_regions.py"
    with pytest.raises(ExecutionError, match=words):
        fluid.Executor(fluid.CUDAPlace(0)).run(feed=feed, fetch_list=[out])
