"""Training from files: what is read, printed and learnt beside Paddle 1.8.5; and what is wrong with files."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.fluid.incubate import data_generator
from rowlock.strategies.errors import (
    DamagedFile,
    InvalidArgument,
    InvalidState,
    InvalidType,
    InvalidValue,
    MissingFile,
    Unsupported,
)
from tests.programs import executor_after, on_places
from tests.reference import file_dataset_cases as cases

PADDLE = json.loads((Path(__file__).parents[1] / "reference/file_datasets.json").read_text())


@pytest.fixture
def net() -> Iterator[tuple[Any, ...]]:
    with fluid.scope_guard(fluid.Scope()):
        main, startup, variables, loss = cases.net(fluid)
        exe = executor_after(startup)
        yield exe, main, variables, loss


def ids_of(dataset: Any, threads: int = 0) -> list[list[int]]:
    return [np.asarray(batch["ids"]).ravel().tolist() for batch in dataset.batches(threads)]


def flat(batches: list[list[int]]) -> list[int]:
    return sorted(i for batch in batches for i in batch)


def dataset_of(
    variables: Any, files: list[str], kind: str = "QueueDataset", command: str = "cat"
) -> Any:
    return cases.dataset_of(fluid, kind, variables, files, command)


@pytest.mark.parametrize("kind", cases.KINDS)
@pytest.mark.parametrize("command", cases.COMMANDS)
def test_training_from_files_prints_and_learns_what_paddle_does(
    kind: str, command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    outcome = cases.train(fluid, kind, command, str(tmp_path))
    paddles = PADDLE["trained"][kind][command]
    assert outcome["desc"] == paddles["desc"]
    assert capfd.readouterr().out == paddles["printed"]
    for name, values in paddles["values"].items():
        np.testing.assert_allclose(outcome["values"][name], values, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("how", ["stdin", "memory"])
@pytest.mark.parametrize("kind", ["Numbers", "Doubled", "Words"])
def test_generators_write_what_paddles_write(
    kind: str, how: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(cases.LINES))
    generator = cases.generators(data_generator)[kind]()
    generator.run_from_stdin() if how == "stdin" else generator.run_from_memory()
    assert capsys.readouterr().out == PADDLE["written"][kind][how]


@pytest.mark.parametrize(
    ("sample", "text"),
    [
        ([("a", [1])], "the first sample has the slots"),
        ([("b", [1]), ("a", [1])], "the first sample has the slots"),
        ([("a", [1]), ("b", [])], "padding"),
        ([("a", [1]), ("b", "x")], "must be a list"),
        ([("a", [1]), (3, [1])], "must be a str"),
        ([("a", [1]), ("b", ["x"])], "neither int nor float"),
        ("abc", "a sample is a list"),
    ],
)
def test_samples_that_are_none(sample: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Generator(data_generator.MultiSlotDataGenerator):
        def generate_sample(self, line: Any) -> Any:
            return lambda: iter([[("a", [1]), ("b", [2])] if line == "good\n" else sample])

    monkeypatch.setattr(sys, "stdin", io.StringIO("good\nbad\n"))
    with pytest.raises(InvalidValue, match=text) as caught:
        Generator().run_from_stdin()
    assert "line 2 of stdin" in str(caught.value)


def test_threads_read_files_in_turn(tmp_path: Path, net: Any) -> None:
    _, _, variables, _ = net
    files = [str(tmp_path / f"{i}.txt") for i in range(3)]
    for i, file in enumerate(files):
        Path(file).write_text("".join(f"1 {10 * i + j} 1 0 1 0\n" for j in range(3)))
    queue = dataset_of(variables, files)
    assert ids_of(queue) == [[0, 1], [2, 10], [11, 12], [20, 21], [22]]
    assert ids_of(queue, threads=2) == [[0, 1], [10, 11], [2, 20], [12], [21, 22]]
    assert ids_of(queue, threads=9) == [[0, 1], [10, 11], [20, 21], [2], [12], [22]]
    memory = dataset_of(variables, files, "InMemoryDataset")
    memory.set_thread(2)
    memory.load_into_memory()
    assert ids_of(memory) == ids_of(queue)


def test_a_rest_joins_the_batch_before(tmp_path: Path, net: Any) -> None:
    _, _, variables, _ = net
    file = tmp_path / "a.txt"
    file.write_text("".join(f"1 {j} 1 0 1 0\n" for j in range(9)))
    for kind in cases.KINDS:
        dataset = dataset_of(variables, [str(file)], kind)
        dataset.set_batch_size(4)
        sizes = [len(np.asarray(batch["x"])) for batch in dataset.batches(0, least=2)]
        assert sizes == [4, 5]


def test_blocks_are_cut_at_lines(tmp_path: Path, net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, variables, _ = net
    monkeypatch.setattr("rowlock.executor.loading.pipe_command._BLOCK", 7)
    files = cases.write_files(str(tmp_path))
    Path(files[1]).write_text("\n1 18446744073709551615 1 1e3 1 -4")  # no line end, a 64-bit hash
    batches = list(dataset_of(variables, files).batches())
    assert np.asarray(batches[-1]["ids"]).ravel().tolist() == [5, 6, -1]
    assert np.asarray(batches[-1]["x"]).ravel().tolist() == pytest.approx([0.4, 1000])
    assert np.asarray(batches[-1]["y"]).ravel().tolist() == [0, -4]


def test_compressed_files_and_names_of_samples(tmp_path: Path, net: Any) -> None:
    _, _, variables, _ = net
    path = str(tmp_path / "a.txt.gz")
    with gzip.open(path, "wt") as out:
        out.write("1 one 1 7 1 0.5 1 1\n1 two 2 8 9 1 0.5 1 1\n")
    dataset = dataset_of(variables, [path], command="sed 's/ 7 / 6 /'")
    with pytest.raises(DamagedFile, match="no uint64 number"):
        list(dataset.batches())
    memory = fluid.DatasetFactory().create_dataset("InMemoryDataset")
    memory.set_use_var(variables)
    memory.set_filelist([path])
    memory.set_parse_ins_id(True)
    memory.load_into_memory()
    assert ids_of(memory) == [[7], [8, 9]]
    memory.set_parse_content(True)
    with pytest.raises(
        DamagedFile, match=r"line 1: '0\.5' in slot 'ids' is no uint64 number.*1 name 1 content"
    ):
        memory.load_into_memory()


def test_zeros_pad_sequences_in_memory(tmp_path: Path) -> None:
    """What Paddle 1.8.5 feeds of these lines; its QueueDataset keeps zeros."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        ids = fluid.data("ids", [None, 1], "int64", lod_level=1)
        weights = fluid.data("weights", [None, 1], "float32", lod_level=1)
        dense = fluid.data("dense", [None, 2], "int64")
    path = tmp_path / "padded.txt"
    path.write_text("2 0 5 2 0.0 1.5 2 0 1\n1 0 1 0.0 2 0 0\n3 0 0 7 3 1e-7 -1e-6 2e-6 2 0 3\n")
    batches = dataset_of([ids, weights, dense], [str(path)], "InMemoryDataset").batches()
    values = [{name: np.asarray(value) for name, value in batch.items()} for batch in batches]
    lods = [
        batch["ids"].lod() for batch in dataset_of([ids, weights, dense], [str(path)]).batches()
    ]
    assert lods == [[[0, 2, 3]], [[0, 3]]]
    assert [batch["ids"].ravel().tolist() for batch in values] == [[5, 0], [7]]
    np.testing.assert_allclose(values[0]["weights"].ravel(), [1.5, 0])
    np.testing.assert_allclose(values[1]["weights"].ravel(), [2e-6])
    assert [batch["dense"].tolist() for batch in values] == [[[0, 1], [0, 0]], [[0, 3]]]


def test_shuffles(tmp_path: Path, net: Any) -> None:
    _, _, variables, _ = net
    memory = dataset_of(variables, cases.write_files(str(tmp_path)), "InMemoryDataset")
    before = ids_of(memory)
    assert (memory.get_memory_data_size(), memory.get_shuffle_data_size()) == (9, 0)
    np.random.seed(3)
    memory.local_shuffle()
    after = ids_of(memory)
    assert after != before and flat(after) == flat(before)
    assert (memory.get_memory_data_size(), memory.get_shuffle_data_size()) == (9, 9)
    memory.global_shuffle()
    assert flat(ids_of(memory)) == flat(before)
    memory.release_memory()
    assert memory.get_memory_data_size() == 0
    with pytest.raises(InvalidState, match="call load_into_memory"):
        memory.batches()
    memory.preload_into_memory(2)
    memory.wait_preload_done()
    assert ids_of(memory) == before


def test_slots_are_shuffled_apart(tmp_path: Path, net: Any) -> None:
    _, _, variables, _ = net
    memory = dataset_of(variables, cases.write_files(str(tmp_path)), "InMemoryDataset")
    with pytest.raises(InvalidState, match="set_fea_eval"):
        memory.slots_shuffle(["ids"])
    memory.set_fea_eval(1)
    ys = [np.asarray(batch["y"]).ravel().tolist() for batch in memory.batches()]
    memory.slots_shuffle(["ids"])
    sequences = [
        tuple(ids.ravel().tolist())
        for batch in memory.batches()
        for ids in np.split(np.asarray(batch["ids"]), batch["ids"].lod()[0][1:-1])
    ]
    assert len(sequences) == 9 and len(set(sequences)) == 1
    assert [np.asarray(batch["y"]).ravel().tolist() for batch in memory.batches()] == ys
    with pytest.raises(InvalidValue, match="Did you mean 'ids'"):
        memory.slots_shuffle(["idz"])


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("1 3 1 0.5", "the line ends before slot 'y'"),
        ("2 3 0.5 1 1 1 1", "'0.5' in slot 'ids' is no uint64 number"),
        ("1 3 2 0.5 0.5 1 1", "slot 'x' has 2 numbers; its shape [-1, 1] needs 1"),
        ("0 1 0.5 1 1", "slot 'ids' has the count 0"),
        ("1 3 1 a 1 1", "'a' in slot 'x' is no float number"),
        ("1 3 1 0.5 1 1 1", "1 word(s) follow the last slot, the first of them '1'"),
        ("x", "slot 'ids' begins with 'x' where its count is expected"),
        ("5 3 4", "slot 'ids' has the count 5, and the line ends after 2"),
        ("1 3 1 " + "5" * 80 + " 1 1", "is no float number"),
        ("1 3.5 1 0.5 1 1", "'3.5' in slot 'ids' is no uint64 number"),
    ],
)
def test_malformed_lines_are_named(line: str, text: str, tmp_path: Path, net: Any) -> None:
    exe, main, variables, _ = net
    files = cases.write_files(str(tmp_path))
    with open(files[1], "a") as out:
        out.write(line + "\n")
    with pytest.raises(DamagedFile) as caught:
        exe.train_from_dataset(main, dataset_of(variables, files))
    assert f"{files[1]}, line 5: " in str(caught.value) and text in str(caught.value)
    assert "[ids: n uint64] [x: 1 float] [y: 1 uint64]" in str(caught.value)


def test_commands_that_fail_and_files_that_are_not_there(tmp_path: Path, net: Any) -> None:
    exe, main, variables, _ = net
    files = cases.write_files(str(tmp_path))
    with pytest.raises(
        DamagedFile, match=r"(?s)ended with status 3 on .*a.txt.*no such model"
    ) as caught:
        exe.train_from_dataset(
            main, dataset_of(variables, files, command="echo no such model >&2; exit 3")
        )
    assert "'echo no such model >&2; exit 3'" in str(caught.value)
    with pytest.raises(MissingFile, match=r"c\.txt' is not there"):
        exe.train_from_dataset(main, dataset_of(variables, [*files, str(tmp_path / "c.txt")]))
    with pytest.raises(MissingFile, match="is a folder"):
        dataset_of(variables, [str(tmp_path)], "InMemoryDataset")


def test_what_a_command_writes_to_stderr_is_shown(
    tmp_path: Path, net: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    exe, main, variables, _ = net
    files = cases.write_files(str(tmp_path))
    exe.train_from_dataset(main, dataset_of(variables, files, command="echo hello >&2; cat"))
    assert capfd.readouterr().err.count("hello") == 2


def test_what_is_wrong_with_settings(fresh_programs: None, tmp_path: Path, net: Any) -> None:
    exe, main, variables, loss = net
    files = cases.write_files(str(tmp_path))
    factory, dataset = fluid.DatasetFactory(), dataset_of(variables, files)
    half = fluid.layers.data("half", [1], dtype="float16")
    wrong: list[tuple[type[Exception], Any]] = [
        (InvalidValue, lambda: factory.create_dataset("QueueDatasets")),
        (Unsupported, lambda: factory.create_dataset("BoxPSDataset")),
        (InvalidType, lambda: dataset.set_batch_size("2")),
        (InvalidValue, lambda: dataset.set_thread(0)),
        (InvalidType, lambda: dataset.set_filelist("a.txt")),
        (InvalidType, lambda: dataset.set_filelist([3])),
        (InvalidType, lambda: dataset.set_pipe_command(3)),
        (InvalidType, lambda: dataset.set_use_var(["x"])),
        (InvalidValue, lambda: dataset.set_use_var([half])),
        (Unsupported, dataset.local_shuffle),
        (Unsupported, dataset.global_shuffle),
        (Unsupported, lambda: dataset.set_hdfs_config("a", "b")),
        (InvalidState, lambda: exe.train_from_dataset(main)),
        (InvalidType, lambda: exe.train_from_dataset(main, files)),
        (InvalidArgument, lambda: exe.train_from_dataset(main, dataset, fetch_list=[loss])),
        (InvalidState, lambda: exe.train_from_dataset(main, factory.create_dataset())),
        (InvalidValue, lambda: exe.train_from_dataset(main, dataset, print_period=0)),
    ]
    for kind, call in wrong:
        with pytest.raises(kind):
            call()
    with pytest.raises(RuntimeError, match="needs a dataset"):  # as Paddle's documents say
        exe.train_from_dataset(main, None)


def test_inference_leaves_parameters_alone(
    tmp_path: Path, net: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    exe, main, variables, loss = net
    dataset = dataset_of(variables, cases.write_files(str(tmp_path)))
    tensor = fluid.global_scope().find_var("w").get_tensor()
    before = np.array(tensor)
    exe.infer_from_dataset(
        main, dataset, fetch_list=[loss], fetch_info=["loss"], print_period=9, debug=True
    )
    np.testing.assert_array_equal(np.array(tensor), before)
    output = capfd.readouterr().out
    assert output.startswith("loss\tmean_0.tmp_0\t") and "5 steps, 9 samples in" in output


def test_handlers_are_shown_values(tmp_path: Path, net: Any) -> None:
    exe, main, variables, loss = net
    shown: list[float] = []

    class Handler(fluid.executor.FetchHandler):
        def handler(self, res_dict: Any) -> None:
            shown.append(float(res_dict["cost"][0]))

    dataset = dataset_of(variables, cases.write_files(str(tmp_path)))
    exe.train_from_dataset(main, dataset, fetch_handler=Handler({"cost": loss}, period_secs=0))
    assert len(shown) == 5 and shown[0] == pytest.approx(0.691178, abs=1e-6)
    with pytest.raises(InvalidArgument, match="var_dict"):
        Handler()


@pytest.mark.parametrize("launcher", ["threads"])
def test_data_parallel_programs_train_from_files(launcher: str, tmp_path: Path, net: Any) -> None:
    import rowlock

    exe, main, variables, loss = net
    dataset = dataset_of(variables, cases.write_files(str(tmp_path)))
    dataset.set_batch_size(4)  # the rest of one joins the second batch
    with rowlock.cluster(launcher=launcher):
        compiled = on_places(main, 2, loss)
        with pytest.raises(InvalidValue, match="for_test"):
            exe.infer_from_dataset(compiled, dataset)
        exe.train_from_dataset(compiled, dataset)
        together = np.array(fluid.global_scope().find_var("w").get_tensor())
    assert np.isfinite(together).all() and together[3, 1] != pytest.approx(0.7)
