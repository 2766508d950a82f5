"""Sequence ops on a GPU, real or simulated: any lengths, offsets that the host does not see, one graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.codegen.cuda_launches import written
from rowlock.executor.cuda.runtime import graph_can_hold
from rowlock.executor.cuda.transfers import download
from rowlock.executor.device.device import Device
from rowlock.executor.kernels.cuda.support import constant
from rowlock.executor.kernels.cuda.time_steps import TimeOrder
from rowlock.executor.kernels.registry import bind
from rowlock.graph.ops.registry import OPS
from tests.ops.cuda_cases import CUDA, cases, check_forward, close, refusal
from tests.ops.gpu import assert_compile_for_a_gpu, gpu, needs_compiler
from tests.ops.harness import run
from tests.ops.sequence_cases import KINDS, check_pools, check_softmax
from tests.ops.test_conformance import reference_of

pytestmark = needs_compiler
LENGTHS = [[3, 0, 4, 1], [1], [0, 40, 2, 0, 70, 0]]


def computed(dev: Device, op: str, inputs: Any, outputs: Any, **attrs: Any) -> list[np.ndarray]:
    """Return what an op writes over arrays that are full of sevens; on a GPU a graph could hold all of it."""
    xp, back_end = dev.xp, "cuda" if dev.runtime else "numpy"
    operands = {slot: [xp.asarray(array)] for slot, array in inputs.items()}
    results = {slot: [xp.full(like.shape, 7, like.dtype)] for slot, like in outputs.items()}
    steps = bind(op, operands, results, {**OPS[op].attrs, **attrs}, dev, back_end)
    if dev.runtime is None:
        for step in steps:
            step()
        return [array for (array,) in results.values()]
    assert not [step for step in steps if not graph_can_hold(step, xp)]
    dev.runtime.synchronize()
    dev.runtime.execute(steps)
    dev.runtime.synchronize()
    arrays = [array for (array,) in results.values()]
    return [a if isinstance(a, np.ndarray) else a.get() for a in arrays]


def compare(op: str, inputs: Any, outputs: Any, **attrs: Any) -> list[np.ndarray]:
    on_gpu, on_host = (computed(dev, op, inputs, outputs, **attrs) for dev in (gpu(), Device()))
    for one, other in zip(on_gpu, on_host, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    return on_gpu


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("columns", [1, 3, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_pools(lengths: list[int], columns: int, kind: str) -> None:
    check_pools(compare, lengths, columns, kind)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_softmax(lengths: list[int]) -> None:
    check_softmax(compare, lengths)


@pytest.mark.parametrize(
    ("name", "index"), cases("lod_from_lengths", "lod_offsets", "lod_reshaped")
)
def test_offsets_are_computed_where_they_are_read(name: str, index: int) -> None:
    check_forward(name, index, "float32")


@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize("count", [1, 31, 32, 100, 2048, 2049, 20_000])
def test_offsets_of_many_lengths(count: int, kind: str) -> None:
    lengths = np.random.default_rng(count).integers(0, 9, (count, 1)).astype(kind)
    (out,) = compare("lod_from_lengths", {"X": lengths}, {"Out": np.zeros(count + 1, np.int64)})
    np.testing.assert_array_equal(np.diff(out), lengths[:, 0])


PLACES = """
template <class T, class I>
EVERYWHERE void write_places(T* places, const I* ends, const int* order, const int* starts, int rows, int most,
                             int reverse) {
  const Walk walk(ends, order, starts, rows, reverse);
  for (int step = threadIdx.x; step < walk.length; step += blockDim.x)
    places[(long long)blockIdx.x * most + step] = walk.place(step);
}
"""


@pytest.mark.parametrize(
    "ends", [[0, 3, 3, 7, 8], [0, 8, 2, 8], [0, 8, 0, 8, 0, 8], [0, 1, -9, 40, 8]]
)
def test_steps_of_offsets_that_fall_stay_within_the_rows(ends: list[int]) -> None:
    """They are refused, and the launch goes on: what it writes beyond its arrays would be another's."""
    dev, rows, count = gpu(), ends[-1], len(ends) - 1
    order = TimeOrder(dev, "lstm", constant(dev, np.array(ends)), rows, False)
    places = constant(dev, np.full((count, rows), rows - 1, np.int64))
    step = order.launch("write_places", [], written(places=places), [], rows, definitions=PLACES)
    dev.cuda.execute([*order.steps, step])
    at = download(dev.cuda, places)
    assert at.min() >= 0 and at.max() < rows, at
    lengths = sorted(
        np.diff(ends).tolist(), reverse=True
    )  # a block takes a sequence, the longest first
    if lengths[-1] >= 0:
        own = [at[block, :length] for block, length in enumerate(lengths)]
        assert sorted(np.concatenate(own)) == list(range(rows))


def on_gpu(op: str, inputs: Any, **attrs: Any) -> Any:
    return run(OPS[op], inputs, {**OPS[op].attrs, **attrs}, dev=gpu(), **CUDA)


def assert_as_referred(op: str, inputs: Any, **attrs: Any) -> Any:
    """Hold what an op computes to the reference, which has lists of lists; return it."""
    results = on_gpu(op, inputs, **attrs)
    for slot, values in reference_of(OPS[op], inputs, {**OPS[op].attrs, **attrs}).items():
        for array, value in zip(results[slot], values, strict=True):
            close(array, np.asarray(value), 1e-6, f"{op}: {slot}")
    return results


def without(feed: dict[str, Any], slot: str) -> dict[str, Any]:
    return {name: arrays for name, arrays in feed.items() if name != slot}


def nested(rng: np.random.Generator, *counts: int) -> list[np.ndarray]:
    """Return levels of sequences of which so many lie in each, some of them empty."""
    levels = []
    for inner, outer in zip(counts[1:], counts, strict=False):
        cuts = np.sort(rng.integers(0, inner + 1, outer - 1))
        levels.append(np.concatenate([[0], cuts, [inner]]).astype(np.int64))
    return levels


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_many_sequences_are_ranked_split_and_merged(depth: int) -> None:
    rng = np.random.default_rng(depth)
    sequences, rows = 70, 333 if depth else 70
    levels = nested(rng, sequences, *[140] * (depth - 1), rows) if depth else []
    x, mask = rng.normal(size=(rows, 3)).astype("f4"), rng.random((sequences, 1)) < 0.4
    lod = {"X@LOD": levels} if levels else {}
    lengths = np.diff(levels[0]) if levels else rng.integers(0, 5, sequences)
    order = np.argsort(-lengths, kind="stable")
    table = np.stack([order, lengths[order]], 1).astype(np.int64)
    feed = {"X": [x], **lod, "RankTable": [table], "Mask": [mask]}
    if levels:
        assert_as_referred("lod_rank_table", {"X": [x], **lod})
        assert_as_referred("lod_picked", {"X": levels, "Y": [table]}, by="rank")
        assert_as_referred("lod_picked", {"X": levels, "Y": [mask]}, by="true")
    ordered = assert_as_referred("reorder_lod_tensor_by_rank", without(feed, "Mask"))["Out"]
    if depth < 2:  # the gradient op has the levels of the result
        own = [np.concatenate([[0], np.cumsum(table[:, 1])])] if depth else []
        back = {"X": ordered, "RankTable": [table], **({"X@LOD": own} if own else {})}
        (again,) = on_gpu("reorder_lod_tensor_by_rank_grad", back)["Out"]
        np.testing.assert_array_equal(again, x)
    sides = assert_as_referred("split_lod_tensor", without(feed, "RankTable"))
    if depth < 2:
        parts = {"X": [x[:sequences, :1]], "Mask": [mask]}
        for slot, named in (("InTrue", mask[:, 0]), ("InFalse", ~mask[:, 0])):
            parts[slot] = sides[slot.replace("In", "Out")]
            if depth:
                parts[f"{slot}@LOD"] = [np.concatenate([[0], np.cumsum(lengths[named])])]
        (merged,) = assert_as_referred("merge_lod_tensor", parts)["Out"]
        np.testing.assert_array_equal(merged, x)


@pytest.mark.parametrize("merge_repeated", [True, False])
def test_many_labels_are_aligned(merge_repeated: bool) -> None:
    rng = np.random.default_rng(4)
    attrs = {"blank": 1, "merge_repeated": merge_repeated}
    labels = rng.integers(0, 3, (300, 1))
    for lod in (nested(rng, 40, 300), [np.array([0, 300])]):
        feed = {"Input": [labels], "Input@LOD": lod}
        assert_as_referred("ctc_align", feed, **attrs)
        assert_as_referred("lod_aligned", {"X": lod, "Rows": [labels]}, **attrs)
    assert_as_referred("ctc_align", {"Input": [labels * 0 + 1], "Input@LOD": lod}, **attrs)
    padded = {"Input": [labels.reshape(12, 25)], "InputLength": [rng.integers(0, 26, 12)]}
    assert_as_referred("ctc_align", padded, padding_value=-7, **attrs)
    padded["InputLength"][0][5] = 26
    said = refusal(OPS["ctc_align"], padded, "cuda")
    assert "length 26 is outside the 26 lengths that 25 columns of Input have room for" in said


def test_many_labels_are_compared() -> None:
    """Sequences longer than a block has threads, and empty ones; those that do not fit are refused."""
    rng = np.random.default_rng(6)
    hyps, refs = rng.integers(0, 4, (50, 1)), rng.integers(0, 4, (160, 1)).astype("i4")
    lods = [np.array([0, 20, 20, 35, 50]), np.array([0, 145, 150, 160, 160])]
    feed = {"Hyps": [hyps], "Refs": [refs], "Hyps@LOD": lods[:1], "Refs@LOD": lods[1:]}
    (out,) = on_gpu("edit_distance", feed)["Out"]
    (expected,) = run(OPS["edit_distance"], feed, OPS["edit_distance"].attrs)["Out"]
    np.testing.assert_array_equal(out, expected)
    nothing = {"Hyps": [np.array([[-1]])], "Hyps@LOD": [np.zeros(5, np.int64)]}
    (out,) = on_gpu("edit_distance", feed | nothing)["Out"]
    assert out.ravel().tolist() == np.diff(lods[1]).tolist()

    op = OPS["edit_distance"]
    assert "reference 3 is empty" in refusal(op, feed, "cuda", normalized=True)
    short = {"Refs@LOD": [lods[1] - 1]}
    assert "the sequences of Refs end at row 159, and it has 160 rows" in refusal(
        op, feed | short, "cuda"
    )
    lengths = {"HypsLength": [np.array([9, 20])], "RefsLength": [np.array([22, 21])]}
    rows = {"Hyps": [hyps[:40].reshape(2, 20)], "Refs": [refs[:42].reshape(2, 21)]}
    assert "length 22 is outside the 21 columns of Refs" in refusal(op, lengths | rows, "cuda")


def test_sequences_that_differ_are_refused() -> None:
    feed = {"X": [np.array([0, 2, 5])], "Y": [np.array([0, 3, 5])]}
    words = {"reader": "linear_chain_crf", "first": "Emission", "second": "Label"}
    problem = "linear_chain_crf: Label has other sequences than Emission: one ends at row 3"
    assert problem in refusal(OPS["lod_alike"], feed, "cuda", **words)


@pytest.mark.parametrize(("name", "index"), cases("edit_distance"))
def test_distances_agree_with_the_reference(name: str, index: int) -> None:
    check_forward(name, index, "float32")


def test_sequences_that_do_not_end_with_the_rows_are_refused() -> None:
    dev, rows = gpu(), np.ones((5, 1), "f4")
    inputs, outputs = {"X": rows, "X@LOD": np.array([0, 2, 6])}, {"Out": rows[:2]}
    try:
        computed(dev, "sequence_pool", inputs, outputs, pooltype="SUM")
        error = dev.asserts.failed(None)
        assert "sequence_pool: the sequences of X end at row 6, and it has 5 rows" in str(error)
    finally:
        dev.asserts.reset()


def test_kernels_compile_for_a_gpu(launched: dict[str, Any]) -> None:
    test_softmax(LENGTHS[0])
    assert_compile_for_a_gpu(launched)
