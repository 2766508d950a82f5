"""Programs on sequences (LoD): what they give in Paddle 1.8.5, on several places, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.fluid import layers
from rowlock.strategies.errors import (
    EnforceNotMet,
    ExecutionError,
    InvalidState,
    SequenceError,
    Unsupported,
)
from tests.programs import on_places, own_programs
from tests.reference import sequences as cases

RECORD = json.loads((Path(__file__).parents[1] / "reference/sequences.json").read_text())
# Paddle forgets the level of a slice when a program is built; and it leaves offsets where rows are others:
# beside a share of right answers, rows joined with rows of no sequence, a row that says that nothing is left.
DIFFERENT = {
    "sequence_slice": [1, [[0, 1, 3]], [3, 4]],
    "accuracy": [0, [], [1]],
    "concat_0_x_y": [0, [], [10, 4]],
}
NOTHING_LEFT = {"decoded_nothing"}


@pytest.mark.parametrize("name", sorted(cases.KEPT))
def test_results_have_the_sequences_of_paddle(name: str) -> None:
    """When a program is built, and when it runs."""
    expected = RECORD["kept"][name]
    ours = cases.run_kept(fluid, name)
    assert ours == ([DIFFERENT[name]] if name in DIFFERENT else expected)


@pytest.mark.parametrize("name", sorted(cases.COMPUTED))
def test_ops_on_sequences_compute_what_paddle_computes(name: str) -> None:
    """Gradients too, and which sequences results have."""
    expected = RECORD["computed"][name]
    ours = cases.run_computed(fluid, name)
    if "error" in expected:
        assert expected["error"][1] == "  [operator < sequence_conv_grad > error]"
        return  # a window that begins before a short sequence by more than its length
    for k, (one, other) in enumerate(zip(ours, expected, strict=True)):
        assert (one[0], one[2]) == (other[0], [] if name in NOTHING_LEFT else other[2])
        near = {"rtol": 1e-5, "atol": 2e-6} if k == 0 else {"rtol": 1e-4, "atol": 1e-5}
        np.testing.assert_allclose(one[1], other[1], **near)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("name", sorted(cases.TRAINED))
def test_programs_on_sequences_train_as_in_paddle(name: str) -> None:
    """Texts of words and of sentences, from lists: 20 steps, on one place and on two."""
    losses = cases.run_trained(fluid, *cases.TRAINED[name])
    np.testing.assert_allclose(losses, RECORD["trained"][name], rtol=1e-4, atol=1e-6)


Build = Callable[..., Any]
ROWS = np.array([[1, 2], [3, 4], [5, 6], [-1, 0], [7, 1]], "float32")
EMPTY_BETWEEN, TWO = [[2, 0, 3]], [[2, 3]]


def sequences(array: Any, lengths: Any) -> Any:
    return fluid.create_lod_tensor(np.asarray(array), lengths, fluid.CPUPlace())


def run(build: Build, feed: dict[str, Any], places: int = 1) -> list[Any]:
    """Build a program on what is fed and run it; returns its results as tensors."""
    with own_programs() as (main, startup):
        data = {
            name: layers.data(
                name,
                list(np.array(value).shape[1:]),
                dtype=str(np.array(value).dtype),
                lod_level=0 if isinstance(value, np.ndarray) else len(value.lod()),
                stop_gradient=False,
            )
            for name, value in feed.items()
        }
        results = build(**data)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        program = on_places(main, places) if places > 1 else main
        results = results if isinstance(results, list) else [results]
        return exe.run(program, feed=feed, fetch_list=results, return_numpy=False)


def fixed(*numbers: float, shape: tuple[int, ...]) -> Any:
    values = np.array(numbers, "float32").reshape(shape)
    return fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(values))


def near(result: Any, *numbers: float) -> None:
    np.testing.assert_allclose(
        np.array(result).reshape(-1), np.array(numbers, "float32"), rtol=1e-5, atol=2e-6
    )


POOLED = {
    "average": (2, 3, -9, -9, 3.666667, 2.333333),
    "sqrt": (2.828427, 4.242641, -9, -9, 6.350853, 4.041452),
    "max": (3, 4, -9, -9, 7, 6),
    "last": (3, 4, -9, -9, 7, 1),
    "first": (1, 2, -9, -9, 5, 6),
}


@pytest.mark.parametrize("kind", sorted(POOLED))
def test_pools_of_sequences(kind: str) -> None:
    (out,) = run(
        lambda x: layers.sequence_pool(x, kind, pad_value=-9.0),
        {"x": sequences(ROWS, EMPTY_BETWEEN)},
    )
    near(out, *POOLED[kind])


def test_softmax_of_a_sequence_and_its_gradient() -> None:
    def build(x: Any, seed: Any) -> list[Any]:
        out = layers.sequence_softmax(x)
        return [out, *fluid.gradients([layers.reduce_sum(out * seed)], [x])]

    x, seed = np.array([[0.5], [1], [1.5], [2], [2.5]]), np.array([[1.0], [2], [3], [4], [5]])
    out, d_x = run(
        build, {"x": sequences(x.astype("float32"), TWO), "seed": seed.astype("float32")}
    )
    near(out, 0.377541, 0.622459, 0.186324, 0.307196, 0.50648)
    near(d_x, -0.235004, 0.235004, -0.245977, -0.098351, 0.344327)


@pytest.mark.parametrize(
    ("start", "size", "expected"),
    [
        (None, 3, (50, 30, 34, 55, 24)),
        (0, 3, (30, 11, 55, 24, 9)),
        (-2, 3, (17, 50, 61, 34, 55)),
        (None, 2, (11, 30, 39, 14, 24)),
    ],
)
def test_convolutions_inside_sequences(start: Any, size: int, expected: Any) -> None:
    weight = fixed(*range(1, 2 * size + 1), shape=(2 * size, 1))
    (out,) = run(
        lambda x: layers.sequence_conv(
            x, 1, size, padding_start=start, param_attr=weight, bias_attr=False
        ),
        {"x": sequences(ROWS, TWO)},
    )
    near(out, *expected)


def test_padding_rows_of_a_convolution_are_trained() -> None:
    def build(x: Any) -> list[Any]:
        block = fluid.default_main_program().global_block()
        weight = layers.create_parameter([6, 1], "float32", attr=fixed(*range(1, 7), shape=(6, 1)))
        padding = layers.create_parameter(
            [2, 2], "float32", attr=fixed(100, 0, 0, 1000, shape=(2, 2))
        )
        out = block.create_var(name="out", dtype="float32")
        attrs = {"contextLength": 3, "contextStart": -1, "paddingTrainable": True}
        inputs = {"X": x, "Filter": weight, "PaddingData": padding}
        block.append_op("sequence_conv", inputs, {"Out": out}, attrs)
        return [out, *fluid.gradients([layers.reduce_sum(out)], [padding])]

    out, d_padding = run(build, {"x": sequences(ROWS, TWO)})
    near(out, 150, 6030, 134, 55, 6024)
    near(d_padding, 2, 4, 10, 12)


def test_a_row_convolution_looks_ahead() -> None:
    weight = fixed(1, 10, 0.5, 2, 0.1, 3, shape=(3, 2))
    (out,) = run(lambda x: layers.row_conv(x, 2, weight), {"x": sequences(ROWS, TWO)})
    near(out, 2.5, 28, 3, 40, 5.2, 63, 2.5, 2, 7, 10)


def test_the_distance_of_lines_of_which_nothing_is_read() -> None:
    """``ctc_greedy_decoder`` that leaves no label writes one row of -1, of no sequence; as Paddle has it."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        scores = fluid.data("scores", [None, 3], lod_level=1)
        lines = fluid.data("lines", [None, 1], "int64", lod_level=1)
        distances, count = layers.edit_distance(
            layers.ctc_greedy_decoder(scores, 2), lines, normalized=False
        )
    place = fluid.CPUPlace()
    blank = np.tile(np.array([0, 0, 1], "float32"), (5, 1))
    feed = {
        "scores": fluid.create_lod_tensor(blank, [[2, 3]], place),
        "lines": fluid.create_lod_tensor(np.array([[1], [0], [1]]), [[1, 2]], place),
    }
    out = fluid.Executor(place).run(main, feed=feed, fetch_list=[distances, count])
    assert [value.ravel().tolist() for value in out] == [[1, 2], [2]]


def test_expansion_edit_distance_and_chunks() -> None:
    x = sequences(np.array([[1.0], [2], [3], [4]], "float32"), [[2, 2]])
    y = sequences(np.zeros((8, 1), "float32"), [[2, 2], [3, 3, 1, 1]])
    (out,) = run(lambda x, y: layers.sequence_expand(x, y, 0), {"x": x, "y": y})
    near(out, 1, 2, 1, 2, 3, 4, 3, 4)
    assert out.lod() == [[0, 2, 4, 6, 8]]
    hyps = sequences(np.array([[1], [2], [3], [4]]), [[3, 1]])
    refs = sequences(np.array([[1], [3], [4], [5], [6]]), [[2, 3]])
    out, count = run(
        lambda hyps, refs: list(layers.edit_distance(hyps, refs)), {"hyps": hyps, "refs": refs}
    )
    near(out, 0.5, 0.666667)
    near(count, 2)
    said = sequences(np.array([[0], [1], [4], [2], [3], [0]]), [[4, 2]])
    meant = sequences(np.array([[0], [0], [4], [2], [3], [1]]), [[4, 2]])
    results = run(
        lambda said, meant: list(layers.chunk_eval(said, meant, "IOB", 2)),
        {"said": said, "meant": meant},
    )
    near(
        np.concatenate([np.array(one).reshape(-1) for one in results]), 0.75, 0.6, 0.666667, 4, 5, 3
    )


@pytest.mark.usefixtures("threads")
def test_places_get_whole_sequences_and_results_are_joined() -> None:
    def build(x: Any) -> list[Any]:
        hidden = layers.sequence_conv(x, 2, param_attr=fixed(*range(12), shape=(6, 2)))
        joined = layers.sequence_concat([hidden, x])
        return [hidden, layers.sequence_pool(hidden, "sum"), joined, layers.relu(x)]

    for lengths in ([[2, 0, 3, 1]], [[1, 2], [1, 2, 3]]):
        one_level = len(lengths) == 1
        rows = np.arange(12, dtype="float32").reshape(6, 2) - 4
        feed = {"x": sequences(rows, lengths)}
        program = build if one_level else lambda x: [layers.relu(x), layers.sequence_pool(x, "max")]
        alone, beside = run(program, feed), run(program, feed, places=2)
        for one, other in zip(alone, beside, strict=True):
            np.testing.assert_array_equal(np.array(one), np.array(other))
            assert one.lod() == other.lod()


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize("sizes", [[0, 0, 0, 0], [0, 0, 1, 0], [1, 1, 0, 0]])
def test_sequences_without_rows_keep_their_lengths(sizes: list[int], places: int) -> None:
    """Of all sequences of a place, or of the batch, too, whether they lose their rows or are fed without."""

    def build(x: Any, y: Any, size: Any, offset: Any) -> list[Any]:
        part = layers.sequence_slice(x, offset, size)
        return [part, layers.relu(y), layers.sequence_pool(y, "sum")]

    x, size = sequences(np.ones((5, 2), "float32"), [[1, 1, 2, 1]]), np.array(sizes).reshape(4, 1)
    y = sequences(np.ones((sum(sizes), 2), "float32"), [sizes])
    feed = {"x": x, "y": y, "size": size, "offset": np.zeros_like(size)}
    part, rows, sums = run(build, feed, places)
    assert part.recursive_sequence_lengths() == rows.recursive_sequence_lengths() == [sizes]
    np.testing.assert_array_equal(np.array(sums), np.repeat(size, 2, 1))


@pytest.mark.usefixtures("threads")
def test_places_give_their_rows_sequences_of_lengths_that_the_program_says() -> None:
    def program(x: Any) -> list[Any]:
        apart = layers.lod_reset(layers.relu(x), target_lod=[0, 2, 3])
        return [layers.sequence_pool(apart, "sum"), apart]

    feed = {"x": sequences(np.arange(12, dtype="float32").reshape(6, 2), [[1] * 6])}
    sums, apart = run(program, feed, places=2)
    np.testing.assert_array_equal(np.array(sums), [[2, 4], [4, 5], [14, 16], [10, 11]])
    assert apart.lod() == [[0, 2, 3, 5, 6]]


def drawn_chunks() -> tuple[Any, Any]:
    said, expected = (
        np.array([[0], [1], [4], [2], [3], [0]]),
        np.array([[0], [0], [4], [2], [3], [1]]),
    )
    return sequences(said, [[4, 2]]), sequences(expected, [[4, 2]])


def test_evaluators_add_up_batches() -> None:
    """In the program, as the metrics of ``fluid.metrics`` do on the driver."""
    with own_programs() as (main, startup):
        said, expected = (
            layers.data(name, [1], dtype="int64", lod_level=1) for name in ("said", "meant")
        )
        with pytest.warns(UserWarning, match=r"use fluid\.metrics"):
            chunks = fluid.evaluator.ChunkEvaluator(said, expected, "IOB", 2)
            edits = fluid.evaluator.EditDistance(said, expected)
        counts = layers.chunk_eval(said, expected, "IOB", 2)[3:]
        distances = layers.edit_distance(said, expected)
    beside = fluid.metrics.ChunkEvaluator(), fluid.metrics.EditDistance("edits")
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)  # no reset: they begin at 0
        for said_fed, meant_fed in (drawn_chunks(), drawn_chunks()[::-1], drawn_chunks()):
            feed = {"said": said_fed, "meant": meant_fed}
            values = exe.run(main, feed=feed, fetch_list=[*counts, *distances])
            beside[0].update(*values[:3])
            beside[1].update(*values[3:])
        for evaluator, metric in zip((chunks, edits), beside, strict=True):
            np.testing.assert_allclose(
                np.concatenate(evaluator.eval(exe)), metric.eval(), rtol=1e-6
            )
        edits.reset(exe)
        with pytest.raises(InvalidState, match="no pair was measured"):
            edits.eval(exe)


WORDS = sequences(np.array([[1], [2], [1], [0], [3]]), TWO)
PLAIN = {"x": ROWS}
REFUSED: dict[str, tuple[Build, dict[str, Any], type[Exception], str]] = {
    "no sequences": (
        lambda x: layers.sequence_conv(x, 2),
        PLAIN,
        EnforceNotMet,
        "sequence_conv: 'X' holds no sequences: feed it, or what it is computed from, as a LoDTensor",
    ),
    "two levels": (
        lambda x: layers.sequence_conv(x, 2),
        {"x": sequences(ROWS, [[1, 1], [2, 3]])},
        EnforceNotMet,
        "sequence_conv: X must have one level of sequences, has 2",
    ),
    "a stride": (
        lambda x: layers.sequence_conv(x, 2, filter_stride=2),
        {"x": sequences(ROWS, TWO)},
        EnforceNotMet,
        "contextStride must be 1: contextStride = 2",
    ),
    "a row of two numbers": (
        lambda x: layers.sequence_enumerate(x, 2),
        {"x": sequences(ROWS.astype("int64"), TWO)},
        EnforceNotMet,
        r"X must have one number in a row: \[N, 1\]",
    ),
    "a slice beyond the end": (
        lambda x, at, n: layers.sequence_slice(x, at, n),
        {"x": sequences(ROWS, TWO), "at": np.array([[1], [0]]), "n": np.array([[1], [4]])},
        EnforceNotMet,
        "rows 0 to 4 are outside sequence 1 of X, which has 3",
    ),
    "longer than what it is padded to": (
        lambda x: layers.sequence_pad(x, layers.fill_constant([1], "float32", 0.0), maxlen=2)[0],
        {"x": sequences(ROWS, TWO)},
        ExecutionError,
        r"sequence_pad: length 3 is outside the 3 lengths that padded_length 2 has room for \(0 to 2\)",
    ),
    "an image of another size": (
        lambda x, row, col: fluid.contrib.layers.var_conv_2d(x, row, col, 1, 1, 3),
        {name: sequences(ROWS[:, :1], TWO) for name in ("x", "row", "col")},
        SequenceError,
        r"var_conv_2d: sequence 0 of X has 2 numbers, not 1 \* 2 \* 2",
    ),
    "other sequences": (
        lambda x, y: layers.sequence_concat([x, y]),
        {"x": sequences(ROWS, TWO), "y": sequences(ROWS, [[5]])},
        EnforceNotMet,
        "the operands must have equally many sequences",
    ),
    "one without sequences": (
        lambda x, y: layers.sequence_concat([x, y]),
        {"x": sequences(ROWS, TWO), "y": ROWS},
        EnforceNotMet,
        "sequence_concat: each operand must hold sequences",
    ),
    "rows that do not fit": (
        lambda x: layers.sequence_reshape(x, 5),
        {"x": sequences(ROWS, TWO)},
        ExecutionError,
        "sequence.* of X ends at element 4, which is not the end of a row of 5",
    ),
    "offsets that end elsewhere": (
        lambda x, at: layers.sequence_pool(layers.lod_reset(x, at), "sum"),
        {"x": sequences(ROWS, TWO), "at": np.array([[0], [2], [4]], "int32")},
        ExecutionError,
        "lod_reset: offsets must rise from 0 to 5, the number of X's rows, .*4",
    ),
    "offsets that fall": (
        lambda x, at: layers.sequence_pool(layers.lod_reset(x, at), "sum"),
        {"x": sequences(ROWS, TWO), "at": np.array([[0], [3], [2], [5]])},
        ExecutionError,
        "lod_reset: offsets must rise from 0 to 5, the number of X's rows, .*2",
    ),
    "sequences of fewer rows": (
        lambda x, y: layers.sequence_pool(layers.lod_reset(x, y), "sum"),
        {"x": sequences(ROWS, TWO), "y": sequences(ROWS[:4], [[2, 2]])},
        EnforceNotMet,
        "lod_reset: the sequences of Y end at row 4, and X has 5 rows",
    ),
    "a column that is not there": (
        lambda x, ids, new: layers.sequence_scatter(x, ids, new),
        {
            "x": ROWS,
            "ids": sequences(np.array([[1], [0], [1], [0], [3]]), TWO),
            "new": sequences(ROWS[:, :1], TWO),
        },
        ExecutionError,
        "sequence_scatter: id 3 is outside the 2 columns of X",
    ),
    "an id that is not there": (
        lambda ids: fluid.contrib.layers.fused_embedding_seq_pool(ids, [3, 2]),
        {"ids": WORDS},
        ExecutionError,
        "fused_embedding_seq_pool: id 3 is outside the 3 rows of W",
    ),
    "an empty reference": (
        lambda hyps, refs: layers.edit_distance(hyps, refs)[0],
        {"hyps": WORDS, "refs": sequences(np.array([[1], [2]]), [[0, 2]])},
        ExecutionError,
        "edit_distance: reference 0 is empty",
    ),
    "a label beyond the last": (
        lambda said, meant: layers.chunk_eval(said, meant, "IOB", 1)[0],
        {"said": WORDS, "meant": WORDS},
        ExecutionError,
        "chunk_eval: label 3 is outside the 3 labels",
    ),
    "chunks of other sequences": (
        lambda said, meant: layers.chunk_eval(said, meant, "IOB", 2)[0],
        {"said": WORDS, "meant": sequences(np.ones((5, 1), "int64"), [[3, 2]])},
        ExecutionError,
        r"sequences of Inference have the lengths \[.*\], those of Label \[3, 2\]",
    ),
    "tags of other sequences": (
        lambda x, tags: layers.linear_chain_crf(x, tags),
        {"x": sequences(ROWS, TWO), "tags": sequences(np.ones((5, 1), "int64"), [[1, 4]])},
        ExecutionError,
        r"linear_chain_crf: (the sequences of Emission have the lengths \[2, 3\], those of Label \[1, 4\]|"
        "Label has other sequences than Emission: one ends at row 1)",  # where the host does not see them
    ),
    "tags of more sequences": (
        lambda x, tags: layers.linear_chain_crf(x, tags),
        {"x": sequences(ROWS, TWO), "tags": sequences(np.ones((5, 1), "int64"), [[1, 1, 3]])},
        EnforceNotMet,
        "linear_chain_crf: Emission has 2 sequences, Label 3",
    ),
    "tags to judge by of other sequences": (
        lambda x, tags: layers.crf_decoding(
            x, layers.create_parameter([4, 2], "float32", "own").name, tags
        ),
        {"x": sequences(ROWS, TWO), "tags": sequences(np.ones((5, 1), "int64"), [[4, 1]])},
        ExecutionError,
        r"crf_decoding: (the sequences of Emission have the lengths \[2, 3\], those of Label \[4, 1\]|"
        "Label has other sequences than Emission: one ends at row 4)",
    ),
    "a scheme that is none": (
        lambda said, meant: layers.chunk_eval(said, meant, "BIO", 1)[0],
        {"said": WORDS, "meant": WORDS},
        EnforceNotMet,
        "chunk_scheme must be 'plain', 'IOB', 'IOE' or 'IOBES', got 'BIO'",
    ),
    "copies of other sequences": (
        lambda x, times: layers.sequence_expand(x, times),
        {"x": sequences(ROWS, TWO), "times": sequences(ROWS, [[1, 1, 3]])},
        EnforceNotMet,
        "X has 2 sequences, and Y tells of 3 how often they are copied",
    ),
    "images of several sizes": (
        lambda x, sizes: layers.im2sequence(x, input_image_size=sizes),
        {"x": np.zeros((1, 1, 2, 2), "float32"), "sizes": np.ones((1, 2), "float32")},
        Unsupported,
        r"images of several sizes \(input_image_size\) are not built",
    ),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_mistakes_are_explained(name: str) -> None:
    build, feed, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        run(build, feed)


@pytest.mark.parametrize("device", ["gpu"], indirect=True)
@pytest.mark.parametrize(
    "name", [n for n in REFUSED if "offsets" in n or "fit" in n or "of other" in n]
)
def test_offsets_that_do_not_fit_are_seen_on_gpus(name: str, device: str) -> None:
    test_mistakes_are_explained(name)


def test_rows_that_are_changed_behind_their_offsets_are_refused() -> None:
    x = sequences(ROWS, TWO)
    x.set(ROWS[:4], fluid.CPUPlace())
    with pytest.raises(SequenceError, match="its sequences end at row 5, and it has 4 rows"):
        run(lambda x: layers.sequence_pool(x, "sum"), {"x": x})
    with pytest.raises(SequenceError, match="its offsets end at 5, but there are 4 rows below it"):
        x.set_lod([[0, 5]])
    words = fluid.Scope().var("words").get_tensor()
    with pytest.raises(SequenceError, match="variable 'words': LoD level 0"):
        words.set_lod([[1, 5]])


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([[0, 4, 2, 5]], r"LoD level 0: offsets must rise from 0, got \[0, 4, 2, 5\]"),
        ([[1, 5]], "offsets must rise from 0"),
        ([[0, -1, 5]], "offsets must rise from 0"),
        ([[]], r"offsets must rise from 0, got \[\]"),
        ([[0, 2, 4]], "level 0: its offsets end at 4, but there are 5 rows below it"),
        (
            [[0, 3], [0, 1, 5]],
            "its offsets end at 3, but there are 2 sequences in level 1 below it",
        ),
        ([[0.0, 2.5, 5.0]], r"each a list of integer offsets, for example \[\[0, 2, 5\]\]; got"),
        ([np.array([0.0, 5.0])], "integer offsets"),
        ([0, 2, 5], r"integer offsets, for example \[\[0, 2, 5\]\]; got \[0, 2, 5\]"),
        ("05", "integer offsets"),
    ],
)
def test_offsets_that_are_none_are_refused(offsets: Any, message: str) -> None:
    x = sequences(ROWS, TWO)
    with pytest.raises(EnforceNotMet, match=message):
        x.set_lod(offsets)
    assert x.recursive_sequence_lengths() == TWO


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([[6, -1]], r"level 0: lengths must be 0 or more, one for each sequence, got \[6, -1\]"),
        ([[]], "lengths must be 0 or more"),
        ([[2, 2]], "level 0: its lengths add up to 4, but there are 5 rows below it"),
        ([[3], [2, 3]], "its lengths add up to 3, but there are 2 sequences in level 1"),
        ([[2.5, 2.5]], r"each a list of integer lengths, for example \[\[2, 3\]\]; got"),
        ([2, 3], "integer lengths"),
    ],
)
def test_lengths_that_are_none_are_refused(lengths: Any, message: str) -> None:
    x = sequences(ROWS, TWO)
    with pytest.raises(EnforceNotMet, match=message):
        x.set_recursive_sequence_lengths(lengths)
    with pytest.raises(EnforceNotMet, match=message):
        fluid.create_lod_tensor(ROWS, lengths, fluid.CPUPlace())
    assert x.recursive_sequence_lengths() == TWO


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_sequences_that_lose_all_rows(kind: str) -> None:
    """Pools are their padding, all else is empty or padding, and no gradient comes."""

    def build(x: Any, size: Any, offset: Any) -> list[Any]:
        rows = layers.sequence_slice(x, offset, size)
        pools = [layers.sequence_pool(rows, pool, pad_value=3.5) for pool in POOLED]
        padding = layers.fill_constant([1], kind, 9.0)
        others = [layers.sequence_softmax(layers.sequence_reshape(rows, 1))]
        others += [layers.sequence_reverse(rows), layers.sequence_expand(rows, rows, 0)]
        others += [
            layers.sequence_expand(pools[0], rows),
            layers.sequence_expand_as(pools[0], rows),
        ]
        padded = layers.sequence_pad(rows, padding, maxlen=4)[0]
        results = [*pools, padded, *others]
        losses = [layers.reduce_sum(layers.square(result)) for result in results]
        return [*results, *fluid.gradients(losses, [x])]

    x = fluid.create_lod_tensor(ROWS.astype(kind), [[2, 3]], fluid.CPUPlace())
    none = np.zeros((2, 1), "int64")
    results = [np.array(r) for r in run(build, {"x": x, "size": none, "offset": none})]
    for pooled in results[: len(POOLED)]:
        np.testing.assert_array_equal(pooled, np.full((2, 2), 3.5, kind))
    np.testing.assert_array_equal(results[len(POOLED)], np.full((2, 4, 2), 9.0, kind))
    assert [len(rows) for rows in results[len(POOLED) + 1 : -1]] == [0] * 5
    np.testing.assert_array_equal(results[-1], np.zeros((5, 2), kind))
