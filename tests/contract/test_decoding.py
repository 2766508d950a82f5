"""Decoding: Paddle's programs, its ops and what it decodes with equal weights; 2.x names; errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.replica.hypotheses import beam_search_decode
from rowlock.executor.replica.tensor_array import Entry
from rowlock.strategies.errors import InvalidType, InvalidValue, ShapeError
from tests.programs import executor_after, on_places
from tests.reference import decoding_2x as nets_2x
from tests.reference import decoding_cases as nets
from tests.reference.control_flow_cases import described

RECORD: dict[str, Any] = json.loads(Path(nets.__file__).with_name("decoding.json").read_text())
RECORD_2X = json.loads(Path(nets_2x.__file__).with_name("decoding_2x.json").read_text())
L = fluid.layers


pytestmark = pytest.mark.usefixtures("fresh_programs")


@pytest.mark.parametrize("name", RECORD["programs"])
def test_blocks_and_ops_are_paddles(name: str) -> None:
    ours = json.loads(json.dumps(described(nets.build(fluid, name)[0])))
    theirs = RECORD["programs"][name]
    if name == "trained":  # Paddle makes a gradient of the lengths, which are whole numbers, too
        assert [block[:2] for block in ours] == [block[:2] for block in theirs]
        assert ours[1] == theirs[1]
    else:
        assert ours == theirs


def assert_alike(results: Any, expected: Any, name: str) -> None:
    """Compare elements and, where there are any, sequences."""
    for (values, lod), (reference, levels) in zip(results, expected, strict=True):
        assert lod == levels or not reference, name
        np.testing.assert_allclose(values, reference, rtol=1e-5, atol=1e-6, err_msg=name)


def test_beam_search_chooses_what_paddles_does() -> None:
    for name, expected in RECORD["steps"].items():
        assert_alike(nets.run_op(fluid, nets.STEPS[name]), expected, name)


def test_hypotheses_are_paddles() -> None:
    for name, expected in RECORD["sentences"].items():
        steps, attrs = nets.SENTENCES[name]
        arrays = [
            tuple(
                Entry(np.array(step[k], kind), tuple(np.array(level) for level in step[2]))
                for step in steps
            )
            for k, kind in enumerate(("int64", "float32"))
        ]
        results = beam_search_decode(*arrays, **{"beam_size": 2, "end_id": 0, **attrs})
        plain = [(e.elements.tolist(), [level.tolist() for level in e.levels]) for e in results]
        assert_alike(plain, expected, name)
        if name != "all_end":  # nothing can be fed that has no rows
            assert_alike(nets.run_op(fluid, nets.sentences(*steps, **attrs)), expected, name)


@pytest.mark.parametrize("name", RECORD["decoded"])
def test_decoded_words_are_paddles(name: str) -> None:
    results = nets.decode(fluid, name)
    for (shape, values, lod), (like, reference, levels) in zip(
        results, RECORD["decoded"][name], strict=True
    ):
        assert (shape, lod) == (like, levels)
        np.testing.assert_allclose(values, reference, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["beam", "greedy_lstm", "attended"])
def test_two_places_decode_what_one_does(name: str) -> None:
    with rowlock.cluster(launcher="threads"):
        exe, main, fetches = nets.start(fluid, name)
        feed = {n: np.concatenate([v, v[::-1]]) for n, v in nets.feeds(fluid, main).items()}
        alone = exe.run(main, feed=feed, fetch_list=fetches)
        program = on_places(main, 2)
        together = exe.run(program, feed=feed, fetch_list=fetches)
    for one, two in zip(alone, together, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-6)


def test_other_batches_follow_each_other() -> None:
    exe, main, fetches = nets.start(fluid, "beam")
    first = nets.feeds(fluid, main)["first"]
    (both,) = exe.run(main, feed={"first": first}, fetch_list=fetches[:1])
    (one,) = exe.run(main, feed={"first": first[:1]}, fetch_list=fetches[:1])
    np.testing.assert_array_equal(one[0, : both.shape[1]], both[0, : one.shape[1]])


def test_lengths_follow_their_beams_in_2_x() -> None:
    net = nets.Nets(fluid)
    decoder = rowlock.nn.BeamSearchDecoder(
        net.cell("GRU"), nets.START, nets.END, 3, net.embedded, lambda x: net.logits(x, 2)
    )
    _, states, lengths = rowlock.nn.dynamic_decode(
        decoder, net.states("GRU"), max_step_num=5, return_length=True
    )
    exe, main = fluid.Executor(fluid.CPUPlace()), fluid.default_main_program()
    exe.run(fluid.default_startup_program())
    out = exe.run(main, feed=nets.feeds(fluid, main), fetch_list=[lengths, states.lengths])
    np.testing.assert_array_equal(out[0], out[1])


@pytest.mark.parametrize("name", sorted(RECORD_2X))
def test_what_is_decoded_in_2_x_is_paddles(name: str) -> None:
    first = fluid.data("first", [None, nets_2x.WIDTH])
    layers, decode = nets_2x.decoded(rowlock.nn, name, first)
    results = decode()
    exe = executor_after()
    for number, parameter in enumerate(p for layer in layers for p in layer.parameters()):
        tensor = fluid.global_scope().find_var(parameter.name).get_tensor()
        tensor.set(nets_2x.initial(number, tensor.shape()), fluid.CPUPlace())
    values = exe.run(feed={"first": nets_2x.first()}, fetch_list=results)
    for value, (shape, elements) in zip(values, RECORD_2X[name], strict=True):
        assert list(value.shape) == shape
        np.testing.assert_allclose(value.ravel(), elements, rtol=1e-5, atol=1e-5)


def search(**attrs: Any) -> Any:
    """Build one step of beam search over two candidates."""
    ids, scores = fluid.data("ids", [None, 1], "int64"), fluid.data("scores", [None, 1])
    more, chances = fluid.data("more", [None, 2], "int64"), fluid.data("chances", [None, 2])
    return L.beam_search(ids, scores, more, chances, **{"beam_size": 2, "end_id": 0, **attrs})


@pytest.mark.parametrize(
    ("attrs", "error", "words"),
    [
        ({"beam_size": 0}, InvalidValue, "beam_size must be 1 or more, got 0"),
        ({"beam_size": 1.5}, InvalidType, "beam_size"),
        ({"end_id": -1}, InvalidValue, "end_id must be a token, 0 or more, got -1"),
        ({"level": -1}, ShapeError, "level must not be negative"),
    ],
)
def test_a_step_without_a_beam_or_an_end_is_refused(attrs: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        search(**attrs)


@pytest.mark.parametrize(
    ("level", "lod", "words"),
    [
        (0, [], "'scores' holds no sequences"),
        (1, [[0, 1, 2]], "level 1 is outside the 1 levels of sequences of scores"),
    ],
)
def test_candidates_without_sources_are_refused(level: int, lod: Any, words: str) -> None:
    ids, _ = search(level=level)
    column, pair = np.zeros((2, 1), "float32"), np.ones((2, 2), "float32")
    feed = {"ids": column.astype("int64"), "more": pair.astype("int64"), "scores": column}
    chances = nets.lod_tensor(fluid, pair, lod) if lod else pair
    with pytest.raises(ShapeError, match=words):
        fluid.Executor(fluid.CPUPlace()).run(feed={**feed, "chances": chances}, fetch_list=[ids])


def test_arrays_of_a_search_are_checked() -> None:
    one = Entry(np.zeros((1, 1), np.int64), (np.array([0, 1]), np.array([0, 1])))
    flat = Entry(one.elements, one.levels[:1])
    two = Entry(np.zeros((2, 1)), (np.array([0, 1]), np.array([0, 2])))
    for ids, scores, words in (
        ((one,), (), "Ids has 1 entries and Scores 0"),
        ((one, None), (one, None), "entry 1 was never written"),
        ((flat,), (flat,), "entry 0 of Ids has 1 levels of sequences, not 2"),
        ((one,), (two,), "end at row 1; it has 1 words, and Scores 2"),
        ((two,), (two,), "source 0 has 2 hypotheses, more than beam_size=1"),
    ):
        with pytest.raises(InvalidValue, match=words):
            beam_search_decode(ids, scores, 1, 0)


class Changing(L.RNNCell):
    """A cell whose states become something else."""

    def __init__(self, change: Any) -> None:
        self.change = change

    def call(self, inputs: Any, states: Any, **kwargs: Any) -> Any:
        return states, self.change(states)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda s: [s, s], InvalidValue, "in the structure of the states it gets"),
        (lambda s: L.cast(s, "float64"), InvalidType, "changes a state from FP32 to FP64"),
        (lambda s: L.unsqueeze(s, [1]), InvalidValue, "changes the rank of a state"),
    ],
)
def test_states_that_change_are_refused(change: Any, error: Any, words: str) -> None:
    net = nets.Nets(fluid)
    first = fluid.data("first", [None, nets.WIDTH])
    greedy = L.GreedyEmbeddingHelper(net.embedded, fluid.data("tokens", [None], "int64"), 1)
    for decoder in (
        L.BeamSearchDecoder(Changing(change), 0, 1, 2, net.embedded),
        L.BasicDecoder(Changing(change), greedy),
    ):
        with pytest.raises(error, match=words):
            L.dynamic_decode(decoder, first, max_step_num=2)


def test_an_end_outside_the_vocabulary_is_refused() -> None:
    first = fluid.data("first", [None, 4])
    decoder = L.BeamSearchDecoder(Changing(lambda s: s), 0, 9, 2, lambda words: words)
    with pytest.raises(InvalidValue, match="end_token 9 is outside the vocabulary of 4 words"):
        L.dynamic_decode(decoder, first)
    with pytest.raises(InvalidValue, match="beam_size must be 1 or more, got 0"):
        L.BeamSearchDecoder(Changing(lambda s: s), 0, 1, 0)
    with pytest.raises(InvalidType, match="cell must be callable"):
        L.BeamSearchDecoder(None, 0, 1, 2)
    with pytest.raises(InvalidType, match="decoder must be a Decoder"):
        L.dynamic_decode(first)


@pytest.mark.parametrize("passes", [False, True])
def test_hypotheses_of_a_program_that_paddle_saved_keep_their_sequences(passes: bool) -> None:
    """Its files have neither sizes nor levels for what a search found, and a size of 0 for what reads that."""
    zero = L.zeros([1], "int64")
    pair = fluid.create_lod_tensor(np.array([[3], [5]]), [[2], [1, 1]], fluid.CPUPlace())
    ids = fluid.data("ids", [None, 1], "int64", lod_level=2)
    scores = fluid.data("scores", [None, 1], "float32", lod_level=2)
    sentences, _ = L.beam_search_decode(L.array_write(ids, zero), L.array_write(scores, zero), 2, 0)
    out = L.scale(sentences, 1.0)
    for variable, shape in ((sentences, ()), (out, (0,))):
        variable.desc.set_shape(shape)
        variable.desc.set_lod_level(0)
    points = fluid.create_lod_tensor(
        np.array([[0.5], [0.25]], "float32"), [[2], [1, 1]], fluid.CPUPlace()
    )
    exe, program = fluid.Executor(fluid.CPUPlace()), fluid.default_main_program()
    feed = {"ids": pair, "scores": points}
    whole = fluid.CompiledProgram(program) if passes else program
    (result,) = exe.run(whole, feed=feed, fetch_list=[out], return_numpy=False)
    assert result.lod() == [[0, 2], [0, 1, 2]]
    assert np.array(result).ravel().tolist() == [3, 5]
