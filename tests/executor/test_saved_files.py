"""Files of Paddle's are read here and written as Paddle writes them."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
import rowlock.static as static
from rowlock.executor.saving.files import replacing
from rowlock.graph.program.formats.messages import decode, encode
from rowlock.graph.program.formats.state_writer import write_state
from rowlock.strategies.errors import (
    DamagedFile,
    EnforceNotMet,
    InvalidType,
    InvalidValue,
    MissingFile,
    NotInitialized,
    NotSaved,
    StateMismatch,
)
from rowlock.strategies.types import to_numpy
from tests.conftest import lasting
from tests.programs import on_places, own_programs
from tests.reference.formats.models import MODELS, dense

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "reference" / "formats"
OLD, NEW = FIXTURES / "paddle185", FIXTURES / "paddle331"
EXPECTED = json.loads((OLD / "expected.json").read_text())


def fed(name: str) -> dict[str, np.ndarray]:
    kind = np.int64 if name == "words" else np.float32
    return {key: np.array(value, kind) for key, value in EXPECTED[name]["feed"].items()}


def without_callstacks(data: bytes) -> bytes:
    program = decode("ProgramDesc", data)
    for block in program["blocks"]:
        for op in block["ops"]:
            op["attrs"] = [attr for attr in op["attrs"] if attr["name"] != "op_callstack"]
    return encode("ProgramDesc", program)


@pytest.fixture
def exe() -> fluid.Executor:
    return fluid.Executor(fluid.CPUPlace())


@pytest.fixture(autouse=True)
def scope() -> object:
    with fluid.scope_guard(fluid.Scope()):
        yield fluid.global_scope()


def trained() -> tuple[fluid.Program, fluid.Program, fluid.Variable]:
    """A classifier with Adam."""
    with own_programs() as (main, startup):
        _, (prediction,) = dense(fluid)
        y = fluid.layers.data("y", [1], dtype="int64")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, y))
        fluid.optimizer.Adam(0.1).minimize(loss)
    return main, startup, loss


BATCH = {
    "x": np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4),
    "y": np.array([[0], [1], [1], [0]]),
}


@pytest.mark.parametrize(("name", "build", "params"), MODELS, ids=[m[0] for m in MODELS])
def test_a_model_of_paddle_1_8_5(
    name: str, build: object, params: str | None, exe: fluid.Executor, tmp_path: Path
) -> None:
    model, names, targets = fluid.io.load_inference_model(str(OLD / name), exe, None, params)
    assert model.desc.serialize_to_string() == (OLD / name / "__model__").read_bytes()
    assert model.clone().desc.serialize_to_string() == model.desc.serialize_to_string()
    for result, value in zip(
        exe.run(model, fed(name), targets), EXPECTED[name]["fetch"], strict=True
    ):
        np.testing.assert_allclose(
            result, np.array(value, np.float32).reshape(result.shape), atol=1e-5
        )
    assert names == list(fed(name))
    # The same network, built here, makes the same files.
    with own_programs() as (main, startup):
        feeds, fetches = build(fluid)  # type: ignore[operator]
        exe.run(startup)
        fluid.io.load_persistables(exe, str(OLD / name), main, params)
        saved = fluid.io.save_inference_model(
            str(tmp_path), [v.name for v in feeds], fetches, exe, main, None, params
        )
    assert saved == [v.name for v in targets]
    for file in (OLD / name).iterdir():
        data = (tmp_path / file.name).read_bytes()
        data = without_callstacks(data) if file.name == "__model__" else data
        assert data == file.read_bytes(), file.name


def test_a_model_of_paddle_3_3_1(exe: fluid.Executor, tmp_path: Path) -> None:
    model, names, targets = static.load_inference_model(str(NEW / "dense"), exe)
    expected = json.loads((NEW / "expected.json").read_text())["dense"]
    feed = {key: np.array(value, np.float32) for key, value in expected["feed"].items()}
    for result, value in zip(exe.run(model, feed, targets), expected["fetch"], strict=True):
        np.testing.assert_allclose(result, value, atol=1e-5)
    assert names == ["x"]
    state = static.load_program_state(str(NEW / "state"))
    assert state["fc_0.w_0"].shape == (4, 3) and len(state) > 12
    for name in ("dense", "state"):
        data = (NEW / f"{name}.pdmodel").read_bytes()
        assert fluid.Program.parse_from_string(data).desc.serialize_to_string() == data
    (tmp_path / "pir.json").write_text("{}")
    with pytest.raises(MissingFile, match="FLAGS_enable_pir_api=0"):
        static.load_inference_model(str(tmp_path / "pir"), exe)


def test_blocks_of_a_loaded_program_are_kept_and_computed(exe: fluid.Executor) -> None:
    data = (OLD / "blocks.pdmodel").read_bytes()
    program = fluid.Program.parse_from_string(data)
    for copied in (program, program.clone()):
        assert copied.desc.serialize_to_string() == data
        loop = next(op for op in copied.global_block().ops if op.type == "while")
        assert loop.attr("sub_block") is copied.block(loop.attr("sub_block").idx)
    assert program.num_blocks == 7 and program.block(2).parent_idx == 1
    assert program.global_block().var("words").lod_level == 1
    kinds = {v.type.name for v in program.list_vars()}
    assert {"SELECTED_ROWS", "LOD_TENSOR_ARRAY", "READER", "RAW", "STEP_SCOPES"} <= kinds
    for variable in program.list_vars():
        if variable.persistable and variable.dtype is not None and variable.shape:
            value = np.full(variable.shape, 0.1, to_numpy(variable.dtype))
            fluid.global_scope().var(variable.name).get_tensor().set(value)
    words = fluid.create_lod_tensor(np.zeros((2, 1), np.int64), [[2]], fluid.CPUPlace())
    loss = next(op for op in program.global_block().ops if op.type == "mean").output("Out")[0]
    losses = [exe.run(program, {"words": words}, [loss])[0].item() for _ in range(3)]
    assert losses[0] > losses[1] > losses[2]  # it trains, through its loop and its branches


def test_tensors_of_every_type_and_sequences(exe: fluid.Executor, tmp_path: Path) -> None:
    kinds = ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float64"]
    main = fluid.Program()
    for name in ("sequences", *kinds):
        kind = "float32" if name == "sequences" else name
        shape = [6, 2] if name == "sequences" else [2, 3]
        main.global_block().create_var(name=name, shape=shape, dtype=kind, persistable=True)
    fluid.io.load_persistables(exe, str(OLD), main, "tensors")
    for kind in kinds:
        value = fluid.global_scope().find_var(kind).get_tensor().numpy()
        assert value.dtype == kind
        np.testing.assert_array_equal(value, (np.arange(6) % 5).astype(kind).reshape(2, 3))
    lod = fluid.global_scope().find_var("sequences").get_tensor().recursive_sequence_lengths()
    assert lod == [[2, 1], [1, 2, 3]]
    fluid.io.save_persistables(exe, str(tmp_path), main, "tensors")
    data = (OLD / "tensors").read_bytes()
    assert (tmp_path / "tensors").read_bytes() == data
    assert fluid.io.save_persistables(exe, None, main) == data
    fluid.io.save_persistables(exe, str(tmp_path / "apart"), main)
    assert sorted(os.listdir(tmp_path / "apart")) == sorted(["sequences", *kinds])
    fluid.global_scope().find_var("int64").get_tensor().set(np.zeros((2, 3), np.int64))
    fluid.io.load_persistables(exe, None, main, data)
    fluid.io.load_vars(exe, str(tmp_path / "apart"), main, predicate=fluid.io.is_persistable)
    assert fluid.global_scope().find_var("int64").get_tensor().numpy().sum() == 10


def test_training_goes_on_from_a_state(
    exe: fluid.Executor, tmp_path: Path, scope: fluid.Scope
) -> None:
    main, startup, loss = trained()
    exe.run(startup)
    fluid.load(main, str(OLD / "state"), exe)
    old = fluid.load_program_state(str(OLD / "state"))
    for parameter in fluid.io.get_program_parameter(main):
        np.testing.assert_array_equal(
            fluid.io.get_parameter_value(parameter, exe), old[parameter.name]
        )
    fluid.save(main, str(tmp_path / "a" / "state"))
    for ending in ("pdparams", "pdopt"):
        assert (tmp_path / "a" / f"state.{ending}").read_bytes() == (
            OLD / f"state.{ending}"
        ).read_bytes()
    first = [exe.run(main, BATCH, [loss])[0] for _ in range(3)]
    static.load(main, str(tmp_path / "a" / "state"), exe)
    static.save(main, str(tmp_path / "b"), protocol=4)
    exe.run(startup)
    fluid.set_program_state(main, static.load_program_state(str(tmp_path / "b")))
    again = [exe.run(main, BATCH, [loss])[0] for _ in range(3)]
    np.testing.assert_array_equal(first, again)
    loaded = fluid.Program.parse_from_string((tmp_path / "b.pdmodel").read_bytes())
    fluid.io.load_persistables(exe, None, main, fluid.io.save_persistables(exe, None, main))
    fluid.set_program_state(main, old)
    np.testing.assert_array_equal([exe.run(loaded, BATCH, [loss.name])[0] for _ in range(3)], first)


def test_serialized_parts(exe: fluid.Executor, tmp_path: Path) -> None:
    with own_programs() as (main, startup):
        feeds, fetches = dense(fluid)
        exe.run(startup)
        expected = exe.run(main, fed("dense"), fetches)[0]
        model = static.serialize_program(feeds, fetches)
        values = static.serialize_persistables(feeds, fetches, exe)
    static.save_to_file(str(tmp_path / "values"), values)
    with fluid.scope_guard(fluid.Scope()):
        program = static.deserialize_program(model)
        static.deserialize_persistables(
            program, static.load_from_file(str(tmp_path / "values")), exe
        )
        result = exe.run(program, fed("dense"), [fetches[0].name])[0]
        model_again, names, targets = static.load_inference_model(
            None, exe, model_filename=model, params_filename=values
        )
    np.testing.assert_array_equal(result, expected)
    assert names == ["x"] and targets[0].name == fetches[0].name and len(model_again.blocks) == 1


@pytest.mark.parametrize("launcher", ["threads", "ray"])
def test_from_replicas(
    launcher: str, exe: fluid.Executor, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if launcher == "ray":
        request.getfixturevalue("ray_cluster")
    main, startup, loss = trained()
    exe.run(startup)
    build = fluid.BuildStrategy()
    if launcher == "threads":  # an optimizer's state lies at its owner only
        build.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
    compiled = on_places(main, 2, loss, build=build)
    with lasting(launcher):
        exe.run(compiled, BATCH, [loss])
        fluid.io.save_persistables(exe, str(tmp_path), compiled, "all")
        fluid.save(compiled, str(tmp_path / "state"))
        ahead = exe.run_async(compiled, BATCH, [loss])
        late = fluid.io.save_persistables(exe, None, compiled)
        second = ahead.result()[0]
        assert late != (tmp_path / "all").read_bytes()  # of after the step that was under way
        fluid.io.load_persistables(exe, str(tmp_path), compiled, "all")
        np.testing.assert_array_equal(exe.run(compiled, BATCH, [loss])[0], second)
        fluid.load(compiled, str(tmp_path / "state"), exe)
        np.testing.assert_array_equal(exe.run(compiled, BATCH, [loss])[0], second)
        names, targets = ["x"], [main.global_block().var("fc_1.tmp_2")]
        fluid.io.save_inference_model(str(tmp_path / "model"), names, targets, exe, compiled)
    before = exe.run(main.clone(for_test=True), BATCH, ["fc_1.tmp_2"])[0]
    with fluid.scope_guard(fluid.Scope()):
        model, _, fetched = fluid.io.load_inference_model(str(tmp_path / "model"), exe)
        np.testing.assert_array_equal(exe.run(model, {"x": BATCH["x"]}, fetched)[0], before)


def test_what_does_not_fit_is_refused_and_changes_nothing(
    exe: fluid.Executor, tmp_path: Path, scope: fluid.Scope
) -> None:
    main, startup, _ = trained()
    with pytest.raises(NotInitialized, match="fc_0"):
        fluid.io.save_params(exe, str(tmp_path), main, "params")
    assert os.listdir(tmp_path) == []
    exe.run(startup)
    fluid.io.save_params(exe, str(tmp_path), main, "params")
    before = fluid.io.save_persistables(exe, None, main)
    data = (tmp_path / "params").read_bytes()
    for damaged in (data[:-1], data + b"\0", data[:20] + b"\xff" + data[21:], b""):
        (tmp_path / "params").write_bytes(damaged)
        with pytest.raises(DamagedFile, match=r"params.*byte \d+"):
            fluid.io.load_params(exe, str(tmp_path), main, "params")
    with pytest.raises(EnforceNotMet, match="no folder"):
        fluid.io.load_inference_model(str(tmp_path / "none"), exe)
    with pytest.raises(MissingFile, match="params_filename"):
        fluid.io.load_params(exe, str(tmp_path), main)
    with pytest.raises(StateMismatch, match=r"fc_0.b_0.*\[3\].*\[2\]"):
        state = fluid.load_program_state(str(OLD / "state"))
        with open(tmp_path / "other.pdparams", "wb") as file:
            write_state(file, {**state, "fc_0.b_0": np.zeros(2, np.float32)})
        fluid.load(main, str(tmp_path / "other"), exe)
    with pytest.raises(AssertionError, match=r"no value for 'fc_0\.b_0'"):
        with open(tmp_path / "other.pdparams", "wb") as file:
            write_state(file, {"fc_0.w_0": state["fc_0.w_0"]})
        fluid.load(main, str(tmp_path / "other"), exe)
    with pytest.raises(InvalidValue, match="'y' is not needed"):
        target = main.global_block().var("fc_1.tmp_2")
        fluid.io.save_inference_model(str(tmp_path), ["x", "y"], [target], exe, main)
    with pytest.raises(InvalidValue, match="inside"):
        main.global_block().create_var(name="../w", shape=[1], dtype="float32", persistable=True)
        scope.var("../w").get_tensor().set(np.zeros(1, np.float32))
        fluid.io.save_persistables(exe, str(tmp_path / "apart"), main)
    del main.global_block().vars["../w"]
    assert fluid.io.save_persistables(exe, None, main) == before


def test_sliced_and_structured_states_of_2_x(tmp_path: Path) -> None:
    import pickle

    state = {
        "w@@.0": np.arange(4.0),
        "w@@.1": np.arange(2.0),
        "b": ("b_0", np.ones(3, np.float32)),
        "UnpackBigParamInfor@@": {"w": {"OriginShape": (2, 3), "slices": ["w@@.0", "w@@.1"]}},
        "StructuredToParameterName@@": {"b": "b_0"},
    }
    for protocol in (2, 3, 4):
        (tmp_path / "m.pdparams").write_bytes(pickle.dumps(state, protocol))
        arrays = fluid.load_program_state(str(tmp_path / "m"))
        assert sorted(arrays) == ["b", "w"] and arrays["w"].shape == (2, 3)
        assert arrays["b"].flags.writeable


KILLED = """
import sys, numpy as np, rowlock.fluid as fluid
main = fluid.Program()
for i in range(30):
    main.global_block().create_parameter(shape=[1000, 100], dtype="float32", name=f"w{i}")
    fluid.global_scope().var(f"w{i}").get_tensor().set(np.full((1000, 100), 0, np.float32))
fluid.io.save_params(None, sys.argv[1], main, "params")
fluid.save(main, sys.argv[1] + "/state")
print("ready", flush=True)
for step in range(1, 1000):
    for i in range(30):
        fluid.global_scope().var(f"w{i}").get_tensor().set(np.full((1000, 100), step, np.float32))
    fluid.io.save_params(None, sys.argv[1], main, "params")
    fluid.save(main, sys.argv[1] + "/state")
"""


def test_a_save_that_cannot_be_written_names_the_file(exe: fluid.Executor, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    main = fluid.Program()
    main.global_block().create_parameter(shape=[3], dtype="float32", name="w")
    fluid.global_scope().var("w").get_tensor().set(np.ones(3, np.float32))
    with pytest.raises(NotSaved, match=r"file/w' cannot be saved: .* Make room there") as caught:
        fluid.io.save_params(exe, str(tmp_path / "file"), main)
    assert isinstance(caught.value, OSError) and caught.value.errno == errno.EEXIST
    full = pytest.raises(NotSaved, match="cannot be saved: No space left on device")
    with full as caught, replacing() as files, files.open(str(tmp_path / "w")):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.errno == errno.ENOSPC and os.listdir(tmp_path) == ["file"]


def test_a_folder_in_a_files_place_is_refused_before_any_file_is_replaced(
    exe: fluid.Executor, tmp_path: Path
) -> None:
    main, startup, _ = trained()
    exe.run(startup)
    (tmp_path / "m.pdparams").write_bytes(b"the previous save")
    (tmp_path / "m.pdmodel").mkdir()
    with pytest.raises(NotSaved, match=r"m\.pdmodel' cannot be saved: Is a directory"):
        fluid.save(main, str(tmp_path / "m"))
    assert (tmp_path / "m.pdparams").read_bytes() == b"the previous save"
    assert sorted(os.listdir(tmp_path)) == ["m.pdmodel", "m.pdparams"]


def test_what_is_no_path_is_refused_by_its_argument(exe: fluid.Executor, tmp_path: Path) -> None:
    main, startup, _ = trained()
    exe.run(startup)
    wrong: Any = 3
    for argument, call in {
        "model_path": lambda: fluid.save(main, None),
        "dirname": lambda: fluid.io.save_persistables(exe, wrong, main),
        "filename": lambda: fluid.io.load_persistables(exe, str(tmp_path), main, wrong),
    }.items():
        with pytest.raises(InvalidType, match=f"{argument} must be a path, got"):
            call()
    with pytest.raises(ValueError, match=r"path_prefix must be a str .* got 3"):  # as in Paddle
        static.load_inference_model(wrong, exe)
    with pytest.raises(InvalidType, match="predicate must be a function"):
        fluid.io.save_vars(exe, str(tmp_path), main, predicate=wrong)


def test_errors_of_a_load_name_the_variable_and_a_cure(exe: fluid.Executor, tmp_path: Path) -> None:
    main, startup, _ = trained()
    exe.run(startup)
    fluid.save(main, str(tmp_path / "m"))
    fluid.io.save_persistables(exe, str(tmp_path), main, "all")
    data = (tmp_path / "all").read_bytes()
    with pytest.raises(DamagedFile, match=r"tensor 1 of \d+ \('fc_0.b_0'\).*Copy it again"):
        fluid.io.load_persistables(exe, None, main, data[:4] + b"\xff" + data[5:])
    with pytest.raises(DamagedFile, match=r"0 of \d+ tensors, before 'fc_0.b_0': it was saved"):
        fluid.io.load_persistables(exe, None, main, b"")
    state = fluid.load_program_state(str(tmp_path / "m"))
    state["fc_0.b_0"] = np.zeros(2, np.float32)
    with pytest.raises(StateMismatch, match=r"fc_0.b_0.* Build the program as it was"):
        fluid.set_program_state(main, state)
    (tmp_path / "m.pdopt").unlink()
    with pytest.raises(StateMismatch, match=r"m\.pdopt.*set_program_state.*load_program_state"):
        fluid.load(main, str(tmp_path / "m"), exe)


def test_a_load_of_a_folder_names_the_variables_that_have_no_file(
    exe: fluid.Executor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    main, startup, _ = trained()
    exe.run(startup)
    fluid.io.save_persistables(exe, str(tmp_path), main)
    fluid.load(main, str(tmp_path), exe)
    assert not caplog.records
    (tmp_path / "fc_0.b_0").rename(tmp_path / "other")
    fluid.load(main, str(tmp_path), exe)
    assert "files that no variable of the program has: other" in caplog.text
    assert "1 variable(s) of the program have no file in" in caplog.text
    assert "and keep the values that they have: fc_0.b_0" in caplog.text
    (tmp_path / "empty").mkdir()
    with pytest.raises(StateMismatch, match=r"no file in .*empty.* such as 'fc_0\.[bw]_0'"):
        fluid.load(main, str(tmp_path / "empty"), exe)


def test_a_folder_that_may_not_be_read_is_no_missing_save(
    exe: fluid.Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main, startup, _ = trained()
    exe.run(startup)
    folder = tmp_path / "closed"
    fluid.save(main, str(folder / "m"))
    folder.chmod(0)
    user = os.geteuid()
    if user == 0:  # who may read all
        monkeypatch.chdir("/")
        os.seteuid(65534)
    try:
        for call in (
            lambda: fluid.load(main, str(folder / "m"), exe),
            lambda: fluid.load_program_state(str(folder / "m")),
            lambda: fluid.io.load_inference_model(str(folder), exe),
        ):
            with pytest.raises(MissingFile, match=r"closed.*Permission denied"):
                call()
    finally:
        os.seteuid(user)
        folder.chmod(0o700)


def test_what_killed_saves_left_goes_an_hour_later(tmp_path: Path) -> None:
    old, live = tmp_path / ".w.0123abcd.saving", tmp_path / ".w.4567abcd.saving"
    similar = tmp_path / "notes.0123abcd.saving"  # the user's
    for file in (old, live, similar):
        file.write_bytes(b"half a tensor")
    for file in (old, similar):
        os.utime(file, (0, time.time() - 2 * 3600))
    with replacing() as files, files.open(str(tmp_path / "w")) as file:
        file.write(b"a tensor")
    assert sorted(os.listdir(tmp_path)) == [live.name, similar.name, "w"]


@pytest.mark.kills
def test_a_killed_save_leaves_whole_files(exe: fluid.Executor, tmp_path: Path) -> None:
    main = fluid.Program()
    for i in range(30):
        main.global_block().create_parameter(shape=[1000, 100], dtype="float32", name=f"w{i}")
    for wait in (0.0, 0.03):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        fluid.io.load_params(exe, str(tmp_path), main, "params")
        values = {fluid.io.get_parameter_value_by_name(f"w{i}", exe, main)[0, 0] for i in range(30)}
        assert len(values) == 1
        fluid.load(main, str(tmp_path / "state"), exe)


@pytest.mark.parametrize("version", ["185", "331"])
def test_paddle_loads_what_is_saved(version: str, tmp_path: Path) -> None:
    python = os.environ.get(f"ROWLOCK_PADDLE{version}")
    if not python:
        pytest.skip(f"ROWLOCK_PADDLE{version} names no Python with that Paddle")
    from tests.reference.formats import reverse

    reverse.save(str(tmp_path))
    script = str(FIXTURES / "reverse.py")
    env = {**os.environ, "FLAGS_enable_pir_api": "0", "PYTHONPATH": ""}
    subprocess.run([python, script, "load", str(tmp_path)], check=True, env=env, timeout=240)
