"""Mistakes in decoders of which the user writes the cell (their numbers: ``test_sequence_programs.py``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.fluid.contrib.decoder import BeamSearchDecoder, InitState, StateCell, TrainingDecoder
from rowlock.strategies.errors import InvalidState, InvalidType, InvalidValue, NotFound

L = fluid.layers

pytestmark = pytest.mark.usefixtures("fresh_programs")


def cell() -> StateCell:
    state = InitState(init=fluid.data("context", [None, 4]), need_reorder=True)
    return StateCell({"word": None}, {"h": state}, "h")


def searching(own: StateCell | None = None, **options: Any) -> BeamSearchDecoder:
    ids = fluid.data("ids", [None, 1], "int64", lod_level=2)
    scores = fluid.data("scores", [None, 1], "float32", lod_level=2)
    return BeamSearchDecoder(own or cell(), ids, scores, 9, 4, **options)


def inside(act: Callable[[BeamSearchDecoder], Any]) -> Callable[[], None]:
    def mistake() -> None:
        decoder = searching()
        with decoder.block():
            act(decoder)

    return mistake


def twice(decoder: BeamSearchDecoder) -> None:
    for _ in range(2):
        decoder.read_array(decoder._ids, is_ids=True)


MISTAKES: list[tuple[Callable[[], Any], Any, str]] = [
    (lambda: InitState(), InvalidValue, "init_boot must be provided"),
    (lambda: StateCell({}, {"h": 3}, "h"), InvalidType, "state 'h' must be an InitState, got 3"),
    (lambda: StateCell({}, {}, "h"), NotFound, "there is no state 'h'"),
    (lambda: TrainingDecoder(3), InvalidType, "state_cell must be a StateCell, got 3"),
    (lambda: cell().get_state("h"), InvalidState, "inside the block of a decoder"),
    (lambda: cell().get_state("hh"), NotFound, "no state 'hh'. Did you mean 'h'"),
    (lambda: cell().get_input("word"), NotFound, "input 'word' is not given: pass it"),
    (lambda: cell().compute_state({"words": 3}), NotFound, "no input 'words'. Did you mean 'word'"),
    (lambda: cell().compute_state({}), InvalidState, "it has no updater"),
    (lambda: searching().early_stop(), InvalidState, "early_stop: must be called inside its block"),
    (lambda: searching()(), InvalidState, "call decode first"),
    (inside(lambda d: d.update_array(d._ids, d._ids)), InvalidValue, "'ids' was read of no array"),
    (inside(twice), InvalidValue, "one array has the ids, another the scores"),
    (lambda: searching(input_var_dict={"x": 3}).decode(), NotFound, "the cell has no input 'x'"),
    (lambda: searching(beam_size=0), InvalidValue, "beam_size must be 1 or more, got 0"),
]


@pytest.mark.parametrize(("mistake", "error", "words"), MISTAKES)
def test_mistakes_are_named(mistake: Callable[[], Any], error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        mistake()


def test_a_cell_has_one_decoder_at_a_time() -> None:
    own = cell()
    with (
        searching(own).block(),
        pytest.raises(InvalidState, match="belongs to another decoder"),
        TrainingDecoder(own).block(),
    ):
        pass


def test_a_block_of_ones_own_may_stop_early() -> None:
    """Steps count; where a branch is taken, the step is the last."""
    state = InitState(init_boot=fluid.data("context", [None, 4]), shape=[-1, 1], value=1.0)
    decoder = searching(StateCell({}, {"h": state}, "h"), max_len=9)
    steps = L.fill_constant([1], "float32", 0.0)
    limit = L.fill_constant([1], "float32", 3.0)
    with decoder.block():
        ids = decoder.read_array(decoder._ids, is_ids=True)
        scores = decoder.read_array(decoder._scores, is_scores=True)
        own = decoder.state_cell
        own.set_state("h", own.get_state("h") * 2.0)
        L.increment(steps)
        with L.Switch() as switch, switch.case(L.equal(steps, limit)):
            decoder.early_stop()
        own.update_states()
        decoder.update_array(ids, ids)
        decoder.update_array(scores, scores)
    levels, place = [[1], [1]], fluid.CPUPlace()
    feed = {
        "context": np.zeros((1, 4), "float32"),
        "ids": fluid.create_lod_tensor(np.array([[5]]), levels, place),
        "scores": fluid.create_lod_tensor(np.ones((1, 1), "float32"), levels, place),
    }
    exe = fluid.Executor(place)
    words, counted = exe.run(feed=feed, fetch_list=[decoder()[0], steps], return_numpy=False)
    assert np.array(words).ravel().tolist() == [5] * 4 and np.array(counted).tolist() == [3]
