"""Flags, integers and numbers are checked by their annotations, of functions and of constructors alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import isclass, signature
from typing import Any

import numpy as np
import pytest

import rowlock as paddle
import rowlock.fluid as fluid
import rowlock.geometric
import rowlock.incubate
import rowlock.static
from rowlock.strategies.errors import EnforceNotMet, InvalidType, InvalidValue

_KINDS = {"bool": "True or False", "int": "an int", "float": "a number"}


@pytest.fixture(autouse=True)
def _own_program() -> Iterator[None]:
    with fluid.program_guard(fluid.Program()):
        yield


def _arguments() -> Iterator[tuple[Any, str, str]]:
    """Yield optimizers, and the flags, integers and numbers that they take."""
    for module in (paddle.optimizer, fluid.optimizer):
        for name in module.__all__:
            method = getattr(module, name)
            for argument, parameter in (
                signature(method).parameters.items() if isclass(method) else ()
            ):
                if parameter.annotation in _KINDS:
                    yield pytest.param(
                        method, argument, parameter.annotation, id=f"{name}-{argument}"
                    )


@pytest.mark.parametrize(("method", "argument", "kind"), [*_arguments()])
def test_an_optimizer_names_the_argument_of_another_type(
    method: type, argument: str, kind: str
) -> None:
    parameters = signature(method).parameters
    needed = {
        name: 1 if p.annotation == "int" else 0.5
        for name, p in parameters.items()
        if p.default is p.empty and name != argument
    }
    name = method.__name__.removesuffix("Optimizer")
    with pytest.raises(
        InvalidType, match=rf"{name}: {argument} must be {_KINDS[kind]}, got 'yes' \(str\)"
    ):
        method(**needed, **{argument: "yes"})


@pytest.mark.parametrize("value", [True, 1, np.True_, False, 0])
def test_a_flag_may_be_a_number_or_numpys(value: Any) -> None:
    optimizer = paddle.optimizer.Adam(amsgrad=value, beta1=np.float32(0.5), epsilon=1)
    assert optimizer.type == ("amsgrad" if value else "adam")


@pytest.mark.parametrize("value", [2, "True", None, 1.0])
def test_what_is_no_flag_is_refused(value: Any) -> None:
    x = fluid.data("x", [2, 3])
    with pytest.raises(
        InvalidType, match=f"reduce_sum: keep_dim must be True or False, got {value!r}"
    ):
        fluid.layers.reduce_sum(x, keep_dim=value)
    with pytest.raises(InvalidType, match=f"sum: keepdim must be True or False, got {value!r}"):
        paddle.sum(x, keepdim=value)


def test_a_word_is_one_of_those_that_an_annotation_lists() -> None:
    x = fluid.data("x", [2, 3])
    with pytest.raises(
        InvalidValue, match="mse_loss: reduction must be 'mean', 'sum' or 'none', got 'avg'"
    ):
        paddle.nn.functional.mse_loss(x, x, "avg")  # type: ignore[arg-type]
    with pytest.raises(
        InvalidValue, match=r"KLDivLoss: reduction must be .* 'batchmean', got None"
    ):
        paddle.nn.KLDivLoss(None)
    assert paddle.divide(x, x, rounding_mode=None).shape == (2, 3)


def test_a_long_value_is_cut_short() -> None:
    with pytest.raises(
        InvalidType, match=r"x must be a Variable, got \[0, 1, .* \(list\)"
    ) as refusal:
        fluid.layers.relu(list(range(10_000)))
    assert len(str(refusal.value)) < 120


def test_a_subclass_of_a_users_is_named_itself() -> None:
    class Mine(paddle.optimizer.Momentum):
        pass

    with pytest.raises(InvalidType, match="Mine: use_nesterov must be True or False, got 'no'"):
        Mine(use_nesterov="no")  # type: ignore[arg-type]


def _graph() -> tuple[Any, Any, Any]:
    return fluid.data("x", [4, 2]), fluid.data("src", [3], "int64"), fluid.data("dst", [3], "int64")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x, s, d: paddle.geometric.send_u_recv(x, s, d, "median"), InvalidValue,
         "send_u_recv: reduce_op must be 'sum', 'mean', 'max' or 'min', got 'median'"),
        (lambda x, s, d: paddle.geometric.send_u_recv(x, s, d, out_size=0), InvalidValue,
         "send_u_recv: out_size must be above 0, got 0"),
        (lambda x, s, d: paddle.geometric.send_ue_recv(x, x, s, d, "pow"), InvalidValue,
         "send_ue_recv: message_op must be 'add', 'sub', 'mul' or 'div', got 'pow'"),
        (lambda x, s, d: paddle.geometric.send_uv(x, x, x, d), InvalidType,
         "send_uv: src_index must hold integers"),
        (lambda x, s, d: paddle.geometric.segment_sum(x, [0, 1]), InvalidType,
         "segment_sum: segment_ids must be a Variable"),
        (lambda x, s, d: paddle.incubate.identity_loss(x, 3), InvalidValue,
         "identity_loss: reduction must be .* got 3"),
        (lambda x, s, d: paddle.static.setitem(x, 0, np.ones(3)), InvalidValue,
         r"setitem: value \[3\] does not fit \[2\]"),
        (lambda x, s, d: paddle.static.setitem(x, "a", 0), InvalidType, "an index is a number"),
        (lambda x, s, d: paddle.finfo("int32"), InvalidValue, "finfo: dtype must hold floats, .* got 'int32'"),
        (lambda x, s, d: paddle.iinfo("float32"), InvalidValue, "iinfo: dtype must hold integers"),
        (lambda x, s, d: paddle.geometric.segment_sum(x, x), InvalidType, "segment_ids must hold integers"),
        (lambda x, s, d: paddle.geometric.segment_max(x, s), InvalidValue,
         "segment_max: segment_ids must be a vector with a number for each of 4 rows, and 'src' has"),
        (lambda x, s, d: paddle.geometric.send_u_recv(x, s, s[:2]), InvalidValue,
         "send_u_recv: dst_index must be a vector with a number for each of 3 rows"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(
    call: Callable[..., Any], error: type[EnforceNotMet], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(*_graph())


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_limits_of_floats(name: str) -> None:
    limits = paddle.finfo(name)
    assert (limits.dtype, limits.min) == (name, -limits.max)
    assert limits.tiny == limits.smallest_normal > 0
    assert limits.bits == {"float32": 32, "float64": 64}.get(name, 16)
    # of Paddle 3.3.1
    assert limits.resolution == pytest.approx(
        {"float16": 1e-3, "bfloat16": 1e-2, "float32": 1e-6, "float64": 1e-15}[name]
    )
    assert paddle.iinfo(paddle.int32).max == 2**31 - 1


def test_later_scores_are_left_out_of_a_softmax() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 5)).astype("float32")
    main = fluid.Program()
    with fluid.program_guard(main):
        scores = paddle.static.data("x", [-1, 3, -1, -1])
        out = paddle.incubate.softmax_mask_fuse_upper_triangle(scores)
    (value,) = fluid.Executor(fluid.CPUPlace()).run(main, feed={"x": x}, fetch_list=[out])
    weights = np.exp(x) * np.tri(5)
    np.testing.assert_allclose(
        value, weights / weights.sum(-1, keepdims=True), rtol=1e-5, atol=1e-7
    )


_OF_NUMPY: dict[str, Callable[[Any], Any]] = {
    "dims": lambda x: fluid.layers.reduce_sum(x, [np.int64(1)]),
    "one dimension": lambda x: fluid.layers.reduce_sum(x, np.int32(1)),
    "an order": lambda x: fluid.layers.transpose(x, np.array([1, 0])),
    "margins": lambda x: fluid.layers.pad(x, np.array([0, 0, 1, 1])),
    "a shape": lambda x: fluid.layers.reshape(x, [np.int64(-1), np.int64(2)]),
    "a flag": lambda x: fluid.layers.cumsum(x, 1, exclusive=np.True_),
    "a factor": lambda x: fluid.layers.scale(x, np.float32(2), bias_after_scale=np.False_),
    "parts": lambda x: fluid.layers.split(x, np.int64(2), np.int64(1))[1],
}


@pytest.mark.parametrize("layer", _OF_NUMPY.values(), ids=_OF_NUMPY)
def test_numpys_numbers_are_attributes_of_pythons(layer: Callable[[Any], Any]) -> None:
    x = fluid.data("x", [3, 4])
    y = layer(x)
    program = fluid.default_main_program()
    for op in program.global_block().ops:
        for value in op.attrs.values():
            for item in value if isinstance(value, list) else [value]:
                assert not isinstance(item, (np.generic, np.ndarray))
    (result,) = fluid.Executor().run(
        program, feed={"x": np.ones((3, 4), "float32")}, fetch_list=[y]
    )
    assert result.size


def test_an_operator_takes_numpys_numbers() -> None:
    x, block = fluid.data("x", [3, 4]), fluid.default_main_program().global_block()
    y = block.create_var(name="y", dtype="float32")
    op = block.append_op("softmax", {"X": [x]}, {"Out": [y]}, {"axis": np.int64(1)})
    op._set_attr("axis", np.int64(0))
    (result,) = fluid.Executor().run(feed={"x": np.ones((3, 4), "float32")}, fetch_list=[y])
    assert type(op.attr("axis")) is int
    np.testing.assert_allclose(result, 1 / 3, rtol=1e-6)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (
            lambda x: fluid.layers.pad(x, [0, 0.5, 0, 0]),
            "pad: a number of paddings must be an int, got 0.5",
        ),
        (lambda x: fluid.layers.unfold(x, "a"), "unfold: kernel_sizes must be an int, got 'a'"),
        (
            lambda x: fluid.layers.im2sequence(x, 1.5),
            "im2sequence: filter_size must be an int, got 1.5",
        ),
        (lambda x: fluid.layers.crop(x, [1, 1], "a"), "crop: offsets must be an int, got 'a'"),
        (
            lambda x: fluid.layers.reverse(x, [None]),
            "reverse: a number of axis must be an int, got None",
        ),
    ],
)
def test_a_list_of_integers_is_named_where_it_holds_something_else(
    layer: Callable[[Any], Any], message: str
) -> None:
    with pytest.raises(InvalidType, match=message):
        layer(fluid.data("x", [3, 4]))


_OF_UNKNOWN_WIDTH: dict[str, Callable[[Any], Any]] = {
    "nce": lambda x: fluid.layers.nce(x, fluid.data("label", [None, 1], "int64"), 5),
    "linear_chain_crf": lambda x: fluid.layers.linear_chain_crf(
        x, fluid.data("label", [None, 1], "int64", lod_level=1)
    ),
    "center_loss": lambda x: fluid.layers.center_loss(
        x, fluid.data("label", [None, 1], "int64"), 3, 0.1, None
    ),
    "match_matrix_tensor": lambda x: fluid.contrib.layers.match_matrix_tensor(x, x, 2),
    "lstm_unit": lambda x: fluid.layers.lstm_unit(x, x, x),
    "BasicGRUUnit": lambda x: fluid.layers.GRUCell(2)(x, x),
    "BasicLSTMUnit": lambda x: fluid.layers.LSTMCell(2)(x, [x, x]),
}


@pytest.mark.parametrize("layer", _OF_UNKNOWN_WIDTH)
def test_a_width_that_parameters_have_must_be_known(layer: str) -> None:
    x = fluid.data("x", [None, None], lod_level=1)
    with pytest.raises(
        InvalidValue, match=rf"{layer}: the \w+ of 'x', of shape \[-1, -1\], must be known"
    ):
        _OF_UNKNOWN_WIDTH[layer](x)


def test_an_input_with_too_few_dimensions_is_named() -> None:
    x = fluid.data("x", [None], lod_level=1)
    with pytest.raises(InvalidValue, match=r"sequence_conv: 'x', of shape \[-1\], has too few dim"):
        fluid.layers.sequence_conv(x, 3)


@pytest.mark.parametrize("value", [True, np.False_, 1.0])
def test_a_batch_of_flags_is_filled_with_a_flag(value: Any) -> None:
    x = fluid.data("x", [None, 4])
    flags = fluid.layers.fill_constant_batch_size_like(x, [-1, 2], "bool", value)
    (result,) = fluid.Executor().run(feed={"x": np.ones((3, 4), "float32")}, fetch_list=[flags])
    np.testing.assert_array_equal(result, np.full((3, 2), bool(value)))


def test_memories_begin_with_a_float() -> None:
    """Of an integer, too: the attribute of a saved program is a float."""
    x = fluid.data("x", [None, 2], lod_level=1)
    steps, rnn = fluid.layers.DynamicRNN(), fluid.layers.StaticRNN()
    with steps.block():
        steps.step_input(x)
        memory = steps.memory(shape=[2], value=1)
        steps.update_memory(memory, memory + 1)
        steps.output(memory)
    with rnn.step():
        row = rnn.step_input(fluid.data("rows", [3, None, 2]))
        memory = rnn.memory(shape=[-1, 2], batch_ref=row, init_value=1)
        rnn.update_memory(memory, memory + row)
        rnn.step_output(memory)
    blocks = fluid.default_main_program().blocks
    fills = [op for b in blocks for op in b.ops if op.type == "fill_constant_batch_size_like"]
    assert [type(op.attr("value")) for op in fills] == [float, float]


def _data() -> Any:
    return fluid.data("x", [8, 16])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: fluid.layers.transpose(x, None), TypeError,
         r"transpose: perm must be a list or a tuple of ints, got None \(NoneType\)"),
        (lambda x: fluid.layers.transpose(x, [1.0, 0]), TypeError,
         r"transpose: a number of perm must be an int, got 1\.0"),
        (lambda x: fluid.layers.slice(x, 0, 0, 1), TypeError, "slice: axes must be a list or a tuple"),
        (lambda x: fluid.layers.relu(x, name=3), TypeError, r"relu: name must be a str, got 3 \(int\)"),
        (lambda x: fluid.layers.cast(x, None), ValueError, "None is not an element type"),
        (lambda x: fluid.layers.fill_constant([1], None, 1), ValueError, "None is not an element type"),
        (lambda x: fluid.data("y", ["a"]), TypeError, "data 'y': a size of shape must be an int, got 'a'"),
        (lambda x: fluid.layers.conv2d(fluid.data("i", [2, 3, 8, 8]), 4, 3, padding="SAMEE"), ValueError,
         "conv2d: padding must be 'SAME', 'VALID' or numbers, got 'SAMEE'"),
        (lambda x: fluid.layers.pool2d(fluid.data("i", [2, 3, 8, 8]), [2, 2, 2]), ValueError,
         r"pool2d: pool_size must be an int or a list of two, got \[2, 2, 2\]"),
        (lambda x: fluid.layers.create_parameter(None, "float32"), TypeError,
         "create_parameter: shape must be a list"),
        (lambda x: fluid.layers.create_parameter([3], "float32", default_initializer=3), TypeError,
         "create_parameter: default_initializer must be one such as"),
        (lambda x: fluid.ParamAttr(name=3), TypeError, "ParamAttr: name must be a str, got 3"),
        (lambda x: fluid.ParamAttr(regularizer=3), TypeError, "ParamAttr: regularizer must be one such as"),
        (lambda x: fluid.optimizer.SGD("fast"), TypeError, "SGD: learning_rate must be a float"),
        (lambda x: fluid.optimizer.SGD(0.1, parameter_list="w"), TypeError,
         "SGD: parameter_list must be a list of parameters or names, got 'w'"),
        (lambda x: fluid.DataFeeder(None, fluid.CPUPlace()), TypeError, "DataFeeder: feed_list must be a list"),
        (lambda x: x.block.program.clone(for_test="yes"), AssertionError, "for_test must be True or False"),
        (lambda x: paddle.batch(3, 2), TypeError, "batch: reader must be a function .* samples, got 3"),
        (lambda x: paddle.batch(lambda: [1], "two"), TypeError, "batch: batch_size must be .* got 'two'"),
        (lambda x: paddle.reader.shuffle(3, 2), TypeError, "shuffle: reader must be a function, got 3"),
        (lambda x: paddle.squeeze(x, 9), ValueError, "squeeze: axis 9 is outside the 2 dimensions of 'x'"),
        (lambda x: paddle.transpose(x, [5, 0]), ValueError, "transpose: axis 5 is outside the 2 dimensions"),
        (lambda x: paddle.topk(x, 1, axis=9), ValueError, "topk: axis 9 is outside the 2 dimensions"),
        (lambda x: paddle.median(x, 9), ValueError, "median: axis 9 is outside the 2 dimensions"),
        (lambda x: paddle.nn.functional.cross_entropy(x, fluid.data("l", [8, 1], "int64"), axis=5), ValueError,
         "cross_entropy: axis 5 is outside the 2 dimensions"),
        (lambda x: paddle.full([2], "many"), TypeError, r"full: fill_value .* got 'many' \(str\)"),
        (lambda x: paddle.to_tensor([[1], [1, 2]]), ValueError, "to_tensor: data must be lists of one length"),
        (lambda x: paddle.eye(fluid.data("n", [2], "int64")), AssertionError,
         r"eye: num_rows must be .* of one element, got 'n' of shape \[2\]"),
        (lambda x: paddle.einsum(3, x), TypeError, "einsum: equation must be a str, got 3"),
        (lambda x: paddle.static.setitem(x, (0, 20), 1.0), ValueError,
         "'x': index 20 is outside dimension 1, which has 16 elements"),
        (lambda x: paddle.static.setitem(x, 0, None), TypeError, "setitem: value must be a number"),
        (lambda x: paddle.nn.MultiHeadAttention(16, 4)(paddle.unsqueeze(x, 0), attn_mask=3), TypeError,
         "MultiHeadAttention: attn_mask must be a Variable, got 3"),
        (lambda x: paddle.vision.ops.roi_align(x, x, fluid.data("n", [8, 1], "int64"), 3), ValueError,
         r"roi_align: boxes_num must be \[images\], got 'n' of shape \[8, 1\]"),
        (lambda x: paddle.vision.ops.roi_pool(x, x, x, 3), TypeError, "roi_pool: boxes_num must hold integers"),
        (lambda x: fluid.CompiledProgram(x.block.program).with_data_parallel(x), TypeError,
         "loss_name must be a str such as loss.name, got Variable"),
        (lambda x: fluid.io.save_inference_model("model", x, [x], fluid.Executor(fluid.CPUPlace())), ValueError,
         "feeded_var_names must be a list of names, got"),
        (lambda x: fluid.io.save_inference_model("model", None, [x], fluid.Executor(fluid.CPUPlace())),
         ValueError, r"feeded_var_names must be a list of names, got \[None\]"),
        (lambda x: fluid.io.save_vars(fluid.Executor(fluid.CPUPlace()), 3, vars=[x]), TypeError,
         "dirname must be a path, got 3"),
        (lambda x: paddle.optimizer.Adam(beta1=1.5), ValueError, r"Adam: beta1 must be in \[0, 1\), got 1\.5"),
        (lambda x: paddle.distribution.Normal(0.0, 1.0).log_prob("a"), TypeError,
         "Normal: value must be a Variable, got 'a'"),
        (lambda x: paddle.static.save_inference_model(None, [x], [x], fluid.Executor(fluid.CPUPlace())),
         ValueError, "path_prefix must be a str such as"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_named_with_its_function_and_value(
    call: Callable[[Any], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(EnforceNotMet, match=message) as raised:
        call(_data())
    assert isinstance(raised.value, error)  # as in Paddle
