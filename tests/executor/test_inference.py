"""Predictors run models that Paddle 1.8.5 saved, and give what it predicted."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
import rowlock.inference as inference
from rowlock.fluid.core import (
    AnalysisConfig,
    PaddleBuf,
    PaddleDType,
    PaddlePredictor,
    PaddleTensor,
    create_paddle_predictor,
    paddle_dtype_size,
    paddle_tensor_to_bytes,
)
from rowlock.strategies.errors import (
    FeedError,
    InvalidArgument,
    InvalidType,
    InvalidValue,
    MissingFile,
    NotFound,
    NotInitialized,
    Unsupported,
)
from tests.executor.test_saved_files import EXPECTED, OLD, fed
from tests.programs import own_programs
from tests.reference.formats.models import MODELS

ROWS = np.array([[1], [2], [3]])
POINTS = np.arange(8, dtype=np.float32).reshape(2, 4) / 8


def predictor_of(folder: Path, params: str | None = None, **switches: Any) -> PaddlePredictor:
    config = AnalysisConfig(str(folder))
    if params is not None:
        config = AnalysisConfig(str(folder / "__model__"), str(folder / params))
    config.disable_gpu()
    for name, value in switches.items():
        getattr(config, name)(value)
    return create_paddle_predictor(config)


@pytest.mark.parametrize(("name", "build", "params"), MODELS, ids=[m[0] for m in MODELS])
def test_a_model_of_paddle_predicts_as_there(name: str, build: object, params: str | None) -> None:
    values = list(fed(name).values())
    before = fluid.global_scope().local_var_names()
    predictor = predictor_of(OLD / name, params)
    assert predictor.get_input_names() == list(fed(name))
    results = [t.as_ndarray() for t in predictor.run([PaddleTensor(v) for v in values])]
    for input_name, value in fed(name).items():
        predictor.get_input_tensor(input_name).copy_from_cpu(value)
    assert predictor.zero_copy_run()
    outputs = [predictor.get_output_tensor(n).copy_to_cpu() for n in predictor.get_output_names()]
    for result, output, value in zip(results, outputs, EXPECTED[name]["fetch"], strict=True):
        reference = np.array(value, np.float32).reshape(result.shape)
        np.testing.assert_allclose(result, reference, atol=1e-5)
        np.testing.assert_array_equal(result, output)
    assert fluid.global_scope().local_var_names() == before, "a predictor's values are its own"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model with sequences, saved with one file of parameters beside a file for each."""
    with own_programs() as (main, startup):
        x = fluid.data("x", [None, 4])
        words = fluid.data("words", [None, 1], "int64", lod_level=1)
        table = fluid.ParamAttr(initializer=fluid.initializer.Constant(0.5))
        rows = fluid.layers.embedding(words, [10, 4], param_attr=table)
        total = fluid.layers.sequence_pool(rows, "sum") + x
        targets = [total, fluid.layers.argmax(total, 1), fluid.layers.scale(rows, 2.0)]
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        fluid.io.save_inference_model(str(tmp_path), ["x", "words"], targets, exe, main)
        fluid.io.save_inference_model(
            str(tmp_path / "whole"), ["x", "words"], targets, exe, main, "program", "params"
        )
    return tmp_path


def check(outputs: list[PaddleTensor]) -> None:
    total, best, rows = outputs
    np.testing.assert_array_equal(total.as_ndarray(), POINTS + np.array([[0.5], [1.0]]))
    assert total.data.float_data() == total.as_ndarray().ravel().tolist()
    assert (best.dtype, best.data.int64_data(), best.shape) == (PaddleDType.INT64, [3, 3], [2])
    assert rows.lod == [[0, 1, 3]]
    assert rows.data.length() == len(paddle_tensor_to_bytes(rows)) == 3 * 4 * 4


def test_sequences_go_in_and_come_out(folder: Path) -> None:
    points, words = PaddleTensor(POINTS), PaddleTensor(ROWS, "words", [[0, 1, 3]])
    predictor = predictor_of(folder)
    check(predictor.run([points, words]))
    check(predictor.clone().run([points, words]))
    assert predictor.get_input_tensor_shape() == {"x": [-1, 4], "words": [-1, 1]}
    named = predictor_of(folder, switch_specify_input_names=True)
    points.name = "x"
    check(named.run([words, points]))
    predictor.get_input_tensor("x").copy_from_cpu(POINTS)
    source = predictor.get_input_tensor("words")
    source.copy_from_cpu(ROWS)
    source.set_lod([[0, 1, 3]])
    predictor.zero_copy_run()
    assert predictor.get_output_tensor(predictor.get_output_names()[2]).lod() == [[0, 1, 3]]
    source.copy_from_cpu(ROWS[:2])
    source.set_lod([[0, 1, 2]])  # other rows than before
    predictor.zero_copy_run()
    assert predictor.get_output_tensor(predictor.get_output_names()[2]).shape() == [2, 4]


def test_fields_of_a_tensor_are_set_one_by_one(folder: Path) -> None:
    tensor = PaddleTensor()
    assert (tensor.shape, tensor.lod, tensor.data.empty()) == ([], [], True)
    tensor.shape, tensor.data = [2, 4], PaddleBuf(POINTS.ravel().tolist())
    tensor.dtype = PaddleDType.FLOAT32
    check(predictor_of(folder).run([tensor, PaddleTensor(ROWS, lod=[[0, 1, 3]])]))
    tensor.shape = [3, 4]
    with pytest.raises(InvalidValue, match=r"8 elements do not have the shape \[3, 4\]"):
        tensor.as_ndarray()
    shared = np.zeros(2, np.float32)
    view = PaddleTensor(shared, copy=False)
    shared[1] = 3
    assert view.as_ndarray().tolist() == [0, 3]
    assert paddle_dtype_size(PaddleDType.INT64) == 8


def test_a_model_from_bytes_and_by_the_names_of_paddle_2(folder: Path) -> None:
    config = inference.Config(str(folder / "whole" / "program"), str(folder / "whole" / "params"))
    config.set_model_buffer(
        *(
            part
            for name in ("program", "params")
            for data in [(folder / "whole" / name).read_bytes()]
            for part in (data, len(data))
        )
    )
    assert config.model_from_memory()
    predictor = inference.create_predictor(config)
    predictor.get_input_handle("x").copy_from_cpu(POINTS)
    predictor.get_input_handle("words").copy_from_cpu(ROWS)
    predictor.get_input_handle("words").set_lod([[0, 1, 3]])
    assert predictor.run()
    output = predictor.get_output_handle(predictor.get_output_names()[0])
    assert (output.shape(), output.type()) == ([2, 4], inference.DataType.FLOAT32)


def test_clones_predict_in_threads(folder: Path) -> None:
    predictor = predictor_of(folder)
    failures: list[Exception] = []

    def work(clone: PaddlePredictor) -> None:
        try:
            for _ in range(20):
                check(clone.run([PaddleTensor(POINTS), PaddleTensor(ROWS, lod=[[0, 1, 3]])]))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(predictor.clone(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_mistakes_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = predictor_of(folder)
    points, words = PaddleTensor(POINTS), PaddleTensor(ROWS, "words", [[0, 1, 3]])
    with pytest.raises(FeedError, match=r"takes 2 tensors \(x, words\), got 1"):
        predictor.run([points])
    with pytest.raises(FeedError, match=r"feed 'x'.*\[-1, 4\], got \[3, 1\]"):
        predictor.run([words, points])
    with pytest.raises(InvalidType, match=r"list of PaddleTensor \(for arrays"):
        predictor.run([POINTS, ROWS])  # type: ignore[list-item]
    with pytest.raises(FeedError, match="input 'x' holds no value"):
        predictor.zero_copy_run()
    with pytest.raises(NotFound, match=r"no variable 'word', but x, words\. Did you mean 'words'"):
        predictor.get_input_tensor("word")
    with pytest.raises(NotInitialized):
        predictor.get_output_tensor(predictor.get_output_names()[0]).copy_to_cpu()
    with pytest.raises(FeedError, match="must be named x, words, one each; got ''"):
        predictor_of(folder, switch_specify_input_names=True).run([points, words])
    with pytest.raises(MissingFile):
        create_paddle_predictor(AnalysisConfig(str(folder / "none")))
    with pytest.raises(InvalidValue, match="names no model"):
        create_paddle_predictor(AnalysisConfig())
    with pytest.raises(Unsupported, match="TensorRT is not built here"):
        AnalysisConfig(str(folder)).enable_tensorrt_engine(workspace_size=1 << 20)
    config = AnalysisConfig(str(folder))
    config.enable_use_gpu(100, 0)
    monkeypatch.setattr("rowlock.executor.device.place.gpu_count", lambda: 0)
    with pytest.raises(InvalidArgument, match="no GPU"):
        create_paddle_predictor(config)
    with pytest.raises(InvalidType, match="elements of <U1"):
        PaddleTensor(["a"])
