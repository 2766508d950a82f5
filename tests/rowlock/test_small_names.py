"""Small names of Paddle's: compat, nested structures, aliases, checks of feeds, programs as text."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.fluid import debugger, executor
from rowlock.fluid.layers import utils
from rowlock.strategies.errors import NotFound
from tests.programs import own_programs


@pytest.fixture
def program() -> Iterator[Any]:
    with own_programs() as (main, _):
        yield main


def fetched(program: Any, *outs: Any, **feed: Any) -> list[np.ndarray]:
    return fluid.Executor(fluid.CPUPlace()).run(program, feed=feed, fetch_list=list(outs))


def test_compat_turns_text_and_numbers() -> None:
    compat = rowlock.compat
    names: list[Any] = [b"a", "b", None, 1.5]
    assert compat.to_text(names) == ["a", "b", None, 1.5] and names[0] == b"a"
    assert compat.to_text(names, inplace=True) is names and names[0] == "a"
    assert compat.to_text({b"k": b"v"}) == {"k": "v"}
    assert compat.to_bytes({"a", b"b"}) == {b"a", b"b"}
    assert [compat.round(x, 1) for x in (0.25, -0.25, 0.0)] == [0.3, -0.3, 0.0]
    assert compat.floor_division(7, 2) == 3 and compat.get_exception_message(OSError("x")) == "x"
    with pytest.raises(AssertionError, match="takes an exception"):
        compat.get_exception_message(None)


def test_structures_are_taken_apart_and_packed() -> None:
    nest = {"b": [0, 1], "a": (2,)}
    assert utils.flatten(nest) == [2, 0, 1]
    assert utils.pack_sequence_as(nest, [5, 6, 7]) == {"b": [6, 7], "a": (5,)}
    assert utils.map_structure(lambda a, b: a + b, [1, (2,)], [3, (4,)]) == [4, (6,)]
    assert utils.hold_mutable_vars(([],)) and not utils.hold_mutable_vars((1, ("a",)))
    copied = utils.copy_mutable_vars(nest)
    assert copied == nest and copied["b"] is not nest["b"]
    assert utils.convert_to_list(3, 2, "stride") == [3, 3]
    with pytest.raises(ValueError, match="stride must be a number or a list of 2 numbers"):
        utils.convert_to_list([1, 2, 3], 2, "stride")
    with pytest.raises(ValueError, match="3 leaves, and 1 to pack"):
        utils.pack_sequence_as(nest, [1])
    utils.assert_same_structure([1, (2,)], [3, (4,)])
    with pytest.raises(TypeError, match="differ"):
        utils.assert_same_structure([1, (2,)], [3, [4]])
    with pytest.raises(ValueError, match="differ"):
        utils.assert_same_structure([1], [3, 4])


def test_names_that_layers_had_before(program: Any) -> None:
    layers = fluid.layers
    x = fluid.data("x", [2, 3])
    low = layers.fill_constant([1], "float32", 0.5)
    outs = [
        layers.addcmul(x, x, x, 2.0),
        layers.clamp(x, low, 2.0),
        layers.clamp(x, max=1.0),
        layers.elementwise_equal(x, x),
        layers.t(x),
        layers.full([2], 3, dtype="int64"),
        layers.full_like(x, 1.5),
    ]
    value = np.float32([[-1, 0.25, 1], [2, 3, 4]])
    expected = [value + 2 * value**2, value.clip(0.5, 2), np.minimum(value, 1), value == value]
    expected += [value.T, np.int64([3, 3]), np.full((2, 3), 1.5, "float32")]
    for one, other in zip(fetched(program, *outs, x=value), expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other)
    with pytest.raises(TypeError, match="value must be of type float"):
        layers.addcmul(x, x, x, 2)
    with pytest.raises(AssertionError, match="give min or max"):
        layers.clamp(x)
    with pytest.raises(TypeError, match="min must be a float"):
        layers.clamp(x, 1)
    with pytest.raises(ValueError, match="device is"):
        layers.full([1], 1, device="tpu")


def test_what_paddle_does_not_compute_in_static_programs(program: Any) -> None:
    i, k = fluid.data("i", [2, 3], "int64"), fluid.data("k", [2], "int64")
    rows, x = fluid.data("rows", [2, 3]), fluid.data("x", [2, 3])
    outs = [
        rowlock.isin(i, k),
        rowlock.isin(i, k, invert=True),
        rowlock.searchsorted(rows, x, right=True),
        rowlock.narrow(x, 1, -2, 2),
        rowlock.view_as(x, rowlock.zeros([3, 2])),
        rowlock.exp_(x),
    ]
    ids, wanted = np.int64([[1, 2, 3], [4, 5, 1]]), np.int64([1, 5])
    sorted_rows, value = np.float32([[0, 1, 2], [1, 3, 5]]), np.float32([[1, 5, -1], [0, 3, 4]])
    right = [np.searchsorted(a, b, "right") for a, b in zip(sorted_rows, value, strict=True)]
    among = np.isin(ids, wanted)
    expected = [among, ~among, np.stack(right), value[:, 1:], value.reshape(3, 2), np.exp(value)]
    values = fetched(program, *outs, i=ids, k=wanted, rows=sorted_rows, x=value)
    for one, other in zip(values, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_variables_have_methods_and_refuse_imperative_ones(program: Any) -> None:
    x = fluid.data("x", [2, 3])
    x.stop_gradient = False
    assert x.dim() == x.ndimension() == 2 and x.cpu() is x and x.cuda() is x
    loss = rowlock.sum(x.detach() * x)
    (slope,) = rowlock.static.gradients(loss, x)
    value = np.ones([2, 3], "float32") * 3
    np.testing.assert_allclose(fetched(program, slope, x=value)[0], value)
    assert x.detach().stop_gradient and x.add(x).shape == (2, 3) and x.sqrt_().shape == (2, 3)
    for name in ("backward", "numpy", "gradient", "clear_gradient", "register_hook", "tolist"):
        with pytest.raises(NotImplementedError, match=f"Variable.{name} needs the imperative"):
            getattr(x, name)()


@pytest.mark.parametrize("name", ["grad", "Model", "real"])
def test_names_that_are_not_built_say_what_to_use(name: str) -> None:
    with pytest.raises(AttributeError, match=r"has not built it\. [A-Z].*\."):
        getattr(rowlock, name)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda x: rowlock.take(x, x, "wrong"), "mode must be 'raise', 'wrap' or 'clip'"),
        (lambda x: rowlock.kthvalue(x, 4), "k is from 1 to 3, got 4"),
        (lambda x: rowlock.diff(x, 0), "n must be an int above 0"),
        (lambda x: rowlock.narrow(x, 0, 1, 2), "do not lie in 2"),
        (lambda x: rowlock.broadcast_shape([2], [3]), "do not fit"),
        (lambda x: rowlock.tensordot(x, x, 1), "sizes 3 and 2 differ"),
        (lambda x: rowlock.vander(x), "takes a vector"),
        (lambda x: rowlock.select_scatter(x, x, 0, 2), "index 2 is outside 2"),
        (lambda x: rowlock.trapezoid(x, x, 1.0), "not both"),
        (
            lambda x: rowlock.cumulative_trapezoid(x, x, 1.0),
            "cumulative_trapezoid takes x or dx, not both",
        ),
        (lambda x: rowlock.pdist(x[0]), r"pdist takes a matrix whose rows are known, got \[3\]"),
        (
            lambda x: rowlock.reduce_as(x, x[:, :2]),
            r"shape \[2, 2\] does not broadcast to \[2, 3\]",
        ),
        (lambda x: rowlock.combinations(x), "takes a vector, got 2"),
        (lambda x: rowlock.combinations(x[0], 4), "no choice of r=4 elements"),
        (
            lambda x: rowlock.diagonal_scatter(x, x[0]),
            r"y must be \[2\], the diagonal of 'x', got \[3\]",
        ),
        (lambda x: rowlock.slice_scatter(x, x, [0], [0], [1], [1]), "does not fit"),
        (lambda x: rowlock.baddbmm(x, x, x), "must have 3 dimensions, got 2"),
    ],
)
def test_mistakes_are_told(program: Any, call: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call(fluid.data("x", [2, 3]))


def test_feeds_are_compared_with_variables(program: Any) -> None:
    x = fluid.data("x", [None, 3])
    assert executor.check_feed_shape_type(x, np.zeros([5, 3], "float32"))
    with pytest.raises(ValueError, match=r"shape \[-1, 3\], and is fed \[5, 2\]"):
        executor.check_feed_shape_type(x, np.zeros([5, 2], "float32"))
    with pytest.raises(ValueError, match="is fed int64"):
        executor.check_feed_shape_type(x, np.zeros([5, 3], "int64"))
    assert executor.dimension_is_compatible_with([2, -1], [2, 9])
    assert not executor.dimension_is_compatible_with([2], [2, 9])
    assert executor.dtype_is_compatible_with("float32", np.float32)
    assert not executor.has_feed_operators(program.global_block(), {}, "feed")
    assert not executor.has_fetch_operators(program.global_block(), [], "fetch")
    assert executor.as_numpy([np.zeros(2)])[0].shape == (2,)


def test_programs_are_printed_without_their_gradients(program: Any) -> None:
    x = fluid.data("x", [2, 3])
    loss = fluid.layers.mean(fluid.layers.fc(x, 1, bias_attr=False))
    fluid.append_backward(loss)
    text = debugger.pprint_program_codes(program)
    assert "Tensor x (tensor(type=float32, shape=[2, 3]))" in text and "@GRAD" not in text
    assert f"{loss.name} = mean(X=" in text
    assert "@GRAD" in debugger.pprint_block_codes(program.global_block(), show_backward=True)


def test_names_that_libraries_on_paddle_call() -> None:
    attr = fluid.ParamAttr._to_attr
    assert attr(False) is False and attr(None).name is None and attr("w").name == "w"
    assert [one and one.name for one in attr(["a", False])] == ["a", False]
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        weight = fluid.layers.create_parameter([2], "float32", name="kept")
        assert fluid.framework._get_var("kept") is weight
        with pytest.raises(NotFound, match="kept"):
            fluid.executor._fetch_var(weight, fluid.Scope())
        scope = fluid.Scope()
        with fluid.scope_guard(scope):
            fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
            assert fluid.executor._fetch_var(weight).shape == (2,)
            assert fluid.executor._fetch_var("kept", scope, return_numpy=False).shape() == [2]


def test_static_programs_ask_whether_a_net_is_imperative() -> None:
    assert not fluid.dygraph.enabled() and not isinstance(fluid.Program(), fluid.dygraph.Layer)
    assert isinstance(rowlock.nn.Linear(2, 3), fluid.dygraph.Layer)
    with pytest.raises(NotImplementedError, match=r"fluid\.dygraph\.guard: .* no imperative"):
        fluid.dygraph.guard(fluid.CPUPlace())
    with pytest.raises(NotImplementedError, match="feed arrays to Executor"):
        fluid.dygraph.to_variable(np.ones(2))
    assert fluid.dygraph.base.to_variable is fluid.dygraph.to_variable
    with pytest.raises(AttributeError, match=r"nothing prunes or quantizes"):
        _ = fluid.contrib.slim


def test_a_core_by_its_other_name_and_places_of_a_compiled_program(program: Any) -> None:
    from rowlock.fluid.core_avx import AnalysisConfig, LoDTensor

    assert AnalysisConfig is fluid.core.AnalysisConfig and LoDTensor is fluid.core.LoDTensor
    x = fluid.data("x", [None, 2])
    out = fluid.layers.scale(x, 2.0)
    compiled = fluid.CompiledProgram(program).with_data_parallel()
    with rowlock.cluster(launcher="threads"):
        fetched(compiled, out, x=np.ones((4, 2), np.float32))
    assert [str(place) for place in compiled._places] == [str(p) for p in fluid.cpu_places()]


def test_names_go_on_from_a_copy_of_their_generator() -> None:
    with fluid.unique_name.guard():
        assert fluid.unique_name.generate("fc") == "fc_0"
        copy = deepcopy(fluid.unique_name.generator)
        assert fluid.unique_name.generator.ids == {"fc": 1}
        assert fluid.unique_name.generate("fc") == "fc_1"
        with fluid.unique_name.guard(copy):
            assert (
                fluid.unique_name.generator is copy and fluid.unique_name.generate("fc") == "fc_1"
            )


def test_libraries_prune_and_rewire_operators_by_their_declarations() -> None:
    with own_programs() as (main, _):
        image = fluid.data("image", [None, 3, 4, 4])
        maps = fluid.layers.conv2d(image, 6, 3, bias_attr=False)
        fluid.layers.relu(maps)
    block = main.global_block()
    assert block._find_var_recursive("image") is image and block._find_var_recursive("none") is None
    block.var("conv2d_0.w_0").desc.set_shape([4, 3, 3, 3])
    for op in block.ops:
        op.desc.infer_shape(op.block.desc)
    conv, relu = (op.desc for op in block.ops)
    assert relu.type() == "relu" and relu.block() is block
    assert block.var(relu.output("Out")[0]).shape == (-1, 4, 2, 2)
    assert conv.input_names() == ["Input", "Filter"] and conv.output_names() == ["Output"]
    assert conv.input_arg_names() == ["image", "conv2d_0.w_0"]
    assert conv.has_attr("groups") and conv.attr("groups") == 1 and "strides" in conv.attr_names()
    conv._set_attr("strides", [2, 2])
    relu.set_input("X", ["image"])
    relu._rename_input("image", maps.name)
    relu.set_output("Out", ["image"])
    relu._rename_output("image", "conv2d_0.tmp_0")
    assert (relu.input("X"), relu.output_arg_names()) == ([maps.name], ["conv2d_0.tmp_0"])
    conv.infer_shape(block.desc)
    assert maps.shape == (-1, 4, 1, 1)
    with pytest.raises(ValueError, match="relu has no input 'Y'"):
        relu.set_input("Y", ["image"])


def test_libraries_edit_a_program_and_sync_it() -> None:
    """As pruning and quantizing libraries do around what they take out."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        fluid.layers.relu(fluid.layers.tanh(fluid.data("x", [None, 2])))
    block = main.desc.block(0)
    assert [block.op(i).type() for i in range(block.op_size())] == ["tanh", "relu"]
    assert [v.name() for v in block.all_vars()] == ["x", "tanh_0.tmp_0", "relu_0.tmp_0"]
    main.global_block()._remove_op(1)
    main.global_block()._sync_with_cpp()
    main._sync_with_cpp()
    assert block.op_size() == 1


def test_no_imperative_mode_is_left_or_entered() -> None:
    for leave in (fluid.disable_dygraph, fluid.disable_imperative):
        leave()
        assert not fluid.in_dygraph_mode()
    with pytest.raises(AttributeError, match="Programs are always static: leave it out"):
        _ = fluid.enable_dygraph


def test_curves(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    curves = rowlock.utils.Ploter("train", "test")
    curves.append("train", 1, np.float32(0.5))
    with pytest.raises(NotFound, match=r"no curve 'tran', but train, test\. Did you mean 'train'"):
        curves.append("tran", 1, 0.5)
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ImportError, match="DISABLE_PLOT=True"):
        curves.plot(str(tmp_path / "curves.png"))
    monkeypatch.setenv("DISABLE_PLOT", "True")
    curves.plot()
    curves.reset()


def test_a_program_that_users_save_themselves_says_what_can_run_it() -> None:
    program = fluid.Program()
    bare = program.desc.serialize_to_string()
    assert fluid.core.save_op_compatible_info(program.desc)
    assert len(program.desc.serialize_to_string()) > len(bare)


def test_pyreaders_generators_have_their_names(program: Any) -> None:
    reader = fluid.io.PyReader([fluid.data("x", [None, 1])], capacity=2)
    reader.decorate_sample_generator(
        sample_generator=lambda: iter([(1.0,), (2.0,)]), batch_size=2, places=[fluid.CPUPlace()]
    )
    ((batch,),) = list(reader())
    assert np.asarray(batch["x"]).ravel().tolist() == [1, 2]


def test_element_types_print_as_paddles_do() -> None:
    """Of ``paddle.float32`` and its like Paddle 3.3.1 prints these."""
    names = [
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
    ]
    assert [str(getattr(rowlock, name)) for name in names] == [f"paddle.{name}" for name in names]
    assert f"{rowlock.int64} {rowlock.int64:02d} %d" % rowlock.int64 == "paddle.int64 03 3"
    assert str(fluid.core.VarType.RAW) == "VarType.RAW"


def test_places_and_arrays_of_tensors_of_core() -> None:
    place = fluid.core.Place()
    assert not place.is_cpu_place() and not place.is_gpu_place()
    place.set_place(fluid.CPUPlace())
    assert place.is_cpu_place() and not place.is_cuda_pinned_place()
    with pytest.raises(TypeError, match="is no GPU"):
        place.gpu_device_id()
    with pytest.raises(TypeError, match=r"set_place takes a place such as CPUPlace"):
        place.set_place("cpu")
    tensors = fluid.LoDTensorArray()
    tensors.append(fluid.create_lod_tensor(np.ones([2, 1]), [[2]], fluid.CPUPlace()))
    assert len(tensors) == 1 and tensors[0].shape() == [2, 1]
    with pytest.raises(TypeError, match="takes a LoDTensor, got list"):
        tensors.append([1])


def test_batches_of_one_trainer_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    reader = fluid.contrib.reader.distributed_batch_reader(lambda: iter(range(5)))
    assert list(reader()) == list(reader()) == [1, 3]
    monkeypatch.setenv("PADDLE_TRAINER_ID", "2")
    with pytest.raises(AssertionError, match=r"PADDLE_TRAINER_ID is 2.*trainers are 0 to 1"):
        fluid.contrib.distributed_batch_reader(lambda: iter(range(5)))


def test_a_program_is_printed_whole(program: Any, capsys: pytest.CaptureFixture[str]) -> None:
    loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), 1))
    fluid.optimizer.SGD(0.1).minimize(loss)
    fluid.transpiler.details.program_to_code(program)
    printed = capsys.readouterr().out
    assert "mean(" in printed and "mul_grad(" in printed and "sgd(" in printed


def test_decorators_keep_names() -> None:
    from rowlock.fluid.wrapped_decorator import signature_safe_contextmanager, wrap_decorator

    @signature_safe_contextmanager
    def guard() -> Iterator[int]:
        yield 3

    @wrap_decorator(lambda function: lambda x: function(x) + 1)
    def doubled(x: int) -> int:
        return 2 * x

    with guard() as number:
        assert (number, doubled(2), doubled.__name__, guard.__name__) == (3, 5, "doubled", "guard")


def test_a_program_chooses_what_parameters_begin_with() -> None:
    """As in Paddle 3.3.1: instead of what a layer has of its own, not of what an attribute names."""
    nn, static = rowlock.nn, rowlock.static
    start = nn.initializer.Constant
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), rowlock.utils.unique_name.guard():
        nn.initializer.set_global_initializer(start(2.0), start(3.0))
        try:
            nn.BatchNorm2D(3)
            nn.GRUCell(4, 2)
            nn.Linear(4, 2, weight_attr=start(7.0))
            static.create_parameter([2], "float32", default_initializer=start(9.0))
            with pytest.raises(
                TypeError, match="weight_init must be an initializer or None, got 1"
            ):
                nn.initializer.set_global_initializer(1)
        finally:
            nn.initializer.set_global_initializer(None)
        nn.Linear(4, 2)
    exe, scope = static.Executor(rowlock.CPUPlace()), static.Scope()
    with static.scope_guard(scope):
        exe.run(startup)
        values = {
            p.name: np.array(scope.find_var(p.name).get_tensor()).ravel()[0]
            for p in main.all_parameters()
        }
    assert values.pop("linear_1.w_0") != 2.0
    assert values == {
        **{"batch_norm2d_0.w_0": 2, "batch_norm2d_0.b_0": 3, "batch_norm2d_0.w_1": 0},
        **{"batch_norm2d_0.w_2": 1, "gru_cell_0.w_0": 2, "gru_cell_0.w_1": 2},
        **{"gru_cell_0.b_0": 3, "gru_cell_0.b_1": 3, "linear_0.w_0": 7, "linear_0.b_0": 3},
        **{"create_parameter_0.w_0": 2, "linear_1.b_0": 0},
    }
