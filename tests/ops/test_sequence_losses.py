"""Recurrent ops and structured losses: numbers that Paddle 1.8.5 gave, errors, and what is drawn.

``table(r, c, a, b)`` has a (i + 1) + b j in row i, column j.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.device.device import Device
from rowlock.executor.kernels.registry import bind
from rowlock.graph.ops.registry import OPS
from rowlock.strategies.errors import InvalidValue, SequenceError, ShapeError
from tests.ops.harness import gradients, run

LOD = [np.array([0, 2, 5])]


def table(rows: int, columns: int, a: float, b: float) -> Any:
    i, j = np.mgrid[:rows, :columns]
    return np.float32(a) * (i + 1) + np.float32(b) * j


def outputs(op: str, inputs: dict[str, Any], **attrs: Any) -> dict[str, Any]:
    listed = {s: v if isinstance(v, list) else [v] for s, v in inputs.items()}
    return {s: v[0] for s, v in run(OPS[op], listed, {**OPS[op].attrs, **attrs}).items()}


def slopes(op: str, inputs: dict[str, Any], result: str, **attrs: Any) -> dict[str, Any]:
    """Return the gradients of the sum of a result."""
    listed = {s: v if isinstance(v, list) else [v] for s, v in inputs.items()}
    settings = {**OPS[op].attrs, **attrs}
    results = run(OPS[op], listed, settings)
    ones = {result: [np.ones_like(results[result][0])]}
    slopes_by_slot = gradients(OPS[op], listed, results, ones, settings)
    return {s: v[0] for s, v in slopes_by_slot.items() if v}


def near(array: Any, text: str) -> None:
    expected = [[float(x) for x in row.split()] for row in text.split("/")]
    np.testing.assert_allclose(np.reshape(array, np.shape(expected)), expected, atol=2e-6)


LSTM = {"Input": table(5, 8, 0.1, -0.05), "Input@LOD": LOD, "Weight": table(2, 8, 0.1, -0.03)}
BIAS = 0.02 * np.arange(14)[None]


def test_lstm() -> None:
    plain = {**LSTM, "Bias": BIAS[:, :8]}
    out = outputs("lstm", plain, use_peepholes=False)
    near(
        out["Hidden"],
        ".024378 .016587/.067783 .054043/.085654 .075542/.175336 .156879/.267822 .242825",
    )
    near(out["Cell"][-1:], ".502944 .457876")
    d = slopes("lstm", plain, "Hidden", use_peepholes=False)
    near(d["Input"][:1], ".381142 .385517 .018801 .01347 0 0 .013161 .009629")
    near(
        outputs("lstm", {**LSTM, "Bias": BIAS})["Hidden"][[1, 4]],
        ".069156 .054993/.288909 .262254",
    )
    out = outputs("lstm", {**LSTM, "Bias": BIAS}, is_reverse=True)
    near(out["Hidden"][[0, 2]], ".054018 .040373/.229081 .201351")


def test_lstm_batch_results_lie_by_time() -> None:
    out = outputs("lstm", {**LSTM, "Bias": BIAS})
    o = out["BatchGate"][:, 6:]
    np.testing.assert_allclose((o * out["BatchCellPreAct"]), out["Hidden"][[2, 0, 3, 1, 4]])


def test_lstmp() -> None:
    inputs = {
        **LSTM,
        "Weight": table(3, 8, 0.1, -0.03),
        "ProjWeight": table(2, 3, 0.2, -0.1),
        "Bias": BIAS[:, :8],
    }
    out = outputs("lstmp", inputs, use_peepholes=False)
    near(out["Projection"][[1, 4]], ".034914 .02283 .010738/.147717 .098115 .048022")
    near(out["Cell"][-1:], ".491313 .449668")
    d = slopes("lstmp", inputs, "Projection", use_peepholes=False)
    near(d["ProjWeight"], ".610549 .630011 .647813/.538365 .555589 .571307")


def test_gru() -> None:
    inputs = {
        "Input": table(5, 6, 0.1, -0.05),
        "Input@LOD": LOD,
        "Weight": table(2, 6, 0.1, -0.03),
        "Bias": BIAS[:, :6],
    }
    near(
        outputs("gru", inputs)["Hidden"],
        "-.010498 -.025853/.038132 .014576/.102297 .084432/.211637 .184511/.321014 .289047",
    )
    near(
        outputs("gru", inputs, origin_mode=True)["Hidden"],
        "-.009499 -.024105/.029952 .009232/.075784 .064453/.157999 .140683/.241268 .220836",
    )


EMISSION = table(5, 3, 0.1, -0.07) * np.array([1, -1, 1, 1, 1])[:, None]


def test_linear_chain_crf() -> None:
    inputs = {
        "Emission": EMISSION,
        "Emission@LOD": LOD,
        "Transition": table(5, 3, 0.1, -0.2),
        "Label": np.array([0, 2, 1, 1, 0])[:, None],
        "Label@LOD": LOD,
    }
    near(outputs("linear_chain_crf", inputs)["LogLikelihood"], "2.402811/2.917377")
    d = slopes("linear_chain_crf", inputs, "LogLikelihood")
    near(d["Emission"][:1], "-.608677 .330145 .278532")
    near(d["Transition"][[0, 2]], "-.217354 -.339709 .557064/.522305 .376366 -.724703")
    del inputs["Label"], inputs["Label@LOD"]
    assert not outputs("crf_decoding", inputs)["ViterbiPath"].any()


def test_warpctc() -> None:
    inputs = {
        "Logits": EMISSION,
        "Logits@LOD": LOD,
        "Label": np.array([[1], [2], [1]]),
        "Label@LOD": [np.array([0, 1, 3])],
    }
    near(outputs("warpctc", inputs)["Loss"], "1.100245/1.731754")
    d = slopes("warpctc", inputs, "Loss")
    near(d["Logits"][[0, 2]], "0 -.310291 .310291/.148662 .33279 -.481452")


def test_warpctc_without_a_path_is_zero() -> None:
    inputs = {
        "Logits": EMISSION,
        "Logits@LOD": LOD,
        "Label": np.array([[1], [1], [2], [1], [2]]),  # of two steps that would take three
        "Label@LOD": [np.array([0, 2, 5])],
    }
    assert outputs("warpctc", inputs)["Loss"][0] == 0
    assert not slopes("warpctc", inputs, "Loss")["Logits"][:2].any()


NCE = {
    "Input": table(2, 3, 0.3, -0.2),
    "Label": np.array([[1], [4]]),
    "Weight": table(5, 3, 0.1, -0.15),
    "Bias": np.array([[-0.2], [-0.1], [0], [0.1], [0.2]]),
}
FIXED = {"num_total_classes": 5, "num_neg_samples": 2, "custom_neg_classes": [0, 2]}


def test_nce() -> None:
    near(outputs("nce", NCE, **FIXED)["Cost"], "2.20006/2.100794")
    near(outputs("nce", NCE, sampler=1, **FIXED)["Cost"], "2.037265/1.656327")
    d = slopes("nce", NCE, "Cost", **FIXED)
    near(d["Input"], ".064288 .014621 -.035045/.042925 -.020296 -.083517")


def test_sample_logits() -> None:
    inputs = {
        "Logits": table(2, 6, 0.1, -0.15),
        "Labels": np.array([[1], [4]]),
        "CustomizedSamples": np.array([[1, 0, 3], [4, 2, 4]]),
        "CustomizedProbabilities": np.array([[0.2, 0.3, 0.1], [0.2, 0.25, 0.15]]),
    }
    out = outputs("sample_logits", inputs, use_customized_samples=True, num_samples=2)
    sampled = out["SampledLogits"]
    losses = np.log(np.exp(sampled).sum(1)) - sampled[:, 0]
    near(losses, "1.180559 .732314")


@pytest.mark.parametrize("sampler", [0, 1, 2])
def test_noise_follows_its_distribution(sampler: int) -> None:
    rows, classes, drawn = 4000, 6, 5
    shares = {
        0: np.full(6, 1 / 6),
        1: np.append(np.log1p(1 / np.arange(1, 6)) / np.log(6), 0),
        2: np.array([0.1, 0.3, 0.05, 0.25, 0.2, 0.1]),
    }[sampler]
    inputs = {
        "Input": np.zeros((rows, 1)),
        "Label": np.zeros((rows, 1), np.int64),
        "Weight": np.zeros((classes, 1)),
        "CustomDistProbs": shares,
    }
    attrs = {"num_total_classes": classes, "num_neg_samples": drawn, "sampler": sampler}
    labels = outputs("nce", inputs, **attrs)["SampleLabels"][:, 1:]
    slopes_by_slot = np.bincount(labels.ravel(), minlength=classes) / labels.size
    np.testing.assert_allclose(slopes_by_slot, shares, atol=0.01)


def drawn_samples(step: int, seed: int) -> Any:
    dev = Device(seed=3)
    dev.clock.step = step
    labels = np.array([[7], [2]])
    results = {
        "Samples": np.zeros((2, 6), np.int64),
        "Probabilities": np.zeros((2, 6)),
        "SampledLogits": np.zeros((2, 6)),
        "SampledLabels": np.zeros((2, 1), np.int64),
    }
    attrs = {**OPS["sample_logits"].attrs, "num_samples": 5, "seed": seed}
    read = {"Logits": [np.zeros((2, 40))], "Labels": [labels]}
    for call in bind("sample_logits", read, {s: [a] for s, a in results.items()}, attrs, dev):
        call()
    return results["Samples"], results["Probabilities"]


def test_samples_differ_and_are_the_same_for_all_rows() -> None:
    samples, expected = drawn_samples(0, 0)
    assert samples[:, 0].tolist() == [7, 2] and (samples[0, 1:] == samples[1, 1:]).all()
    assert len(set(samples[0, 1:])) == 5 and ((expected > 0) & (expected < 5)).all()
    assert (drawn_samples(1, 0)[0] != samples).any()
    np.testing.assert_array_equal(drawn_samples(0, 4)[0], drawn_samples(1, 4)[0])


def test_a_label_that_is_no_class_is_named() -> None:
    with pytest.raises(InvalidValue, match="nce: label 9 is outside the 5 classes"):
        outputs("nce", {**NCE, "Label": np.array([[1], [9]])}, **FIXED)
    crf = {"Emission": EMISSION, "Emission@LOD": LOD, "Transition": table(5, 3, 0.1, -0.2)}
    with pytest.raises(
        InvalidValue, match="linear_chain_crf: label 3 is outside the 3 tags of Emission"
    ):
        outputs("linear_chain_crf", {**crf, "Label": np.full((5, 1), 3), "Label@LOD": LOD})
    ctc = {"Logits": EMISSION, "Logits@LOD": LOD, "Label@LOD": [np.array([0, 1, 1])]}
    with pytest.raises(InvalidValue, match="warpctc: label 3 is outside the 3 classes"):
        outputs("warpctc", {**ctc, "Label": np.array([[3]])})


@pytest.mark.parametrize("op", ["lstm", "linear_chain_crf", "warpctc"])
def test_sequences_that_do_not_end_with_the_rows_are_refused(op: str) -> None:
    short = [np.array([0, 2, 4])]
    inputs = {
        "lstm": {**LSTM, "Bias": BIAS, "Input@LOD": short},
        "linear_chain_crf": {
            "Emission": EMISSION,
            "Emission@LOD": short,
            "Transition": table(5, 3, 0.1, -0.2),
            "Label": np.zeros((5, 1), np.int64),
            "Label@LOD": short,
        },
        "warpctc": {
            "Logits": EMISSION,
            "Logits@LOD": short,
            "Label": np.array([[1]]),
            "Label@LOD": [np.array([0, 1, 1])],
        },
    }[op]
    with pytest.raises(
        SequenceError, match=rf"{op}: the sequences of \w+ end at row 4, and it has 5"
    ):
        outputs(op, inputs)


def test_lengths_outside_of_the_steps_are_refused() -> None:
    inputs = {
        "Emission": np.zeros((2, 3, 2)),
        "Transition": np.zeros((4, 2)),
        "Label": np.zeros((2, 3), np.int64),
        "Length": np.array([2, 4]),
    }
    with pytest.raises(SequenceError, match="linear_chain_crf: Length 4 is outside the 3 steps"):
        outputs("linear_chain_crf", inputs)


@pytest.mark.parametrize("op", ["linear_chain_crf", "crf_decoding"])
def test_tags_without_sequences_are_refused_as_in_paddle(op: str) -> None:
    inputs = {
        "Emission": EMISSION,
        "Emission@LOD": LOD,
        "Transition": table(5, 3, 0.1, -0.2),
        "Label": np.zeros((5, 1), np.int64),
    }
    with pytest.raises(ShapeError, match=f"{op}: 'Label' holds no sequences: feed it"):
        outputs(op, inputs)
