"""Images lie channels last where a library computes on them, and copies stand where that changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import rowlock.fluid as fluid
from rowlock.executor.host.arena import shaped
from rowlock.executor.kernels.capabilities import back_end, capabilities
from rowlock.graph.ir.capabilities import CHANNELS_LAST
from rowlock.graph.ir.graph import Graph
from rowlock.graph.ir.reader import from_program
from rowlock.graph.lowering.layout import TRANSFER, lay_out
from rowlock.graph.lowering.select import select_kernels
from tests.programs import own_programs


def laid_out(*library: str, pools: str = "") -> Graph:
    """Return a net laid out; ``library`` are the ops of oneDNN, ``pools`` is what computes pooling."""
    with own_programs() as (main, _):
        x = fluid.layers.data("x", [3, 8, 8])
        h = fluid.layers.conv2d(x, 4, 3, act="relu")
        h = fluid.layers.elementwise_add(h, fluid.layers.conv2d(x, 4, 3))
        h = fluid.layers.pool2d(h, pool_size=2, pool_stride=2)
        loss = fluid.layers.mean(fluid.layers.fc(h, 2))
        fluid.optimizer.SGD(0.1).minimize(loss)
    graph = from_program(main, ["x"])
    here = frozenset(("onednn", "cuda"))
    able = {**capabilities(frozenset()), **{name: back_end(name, here) for name in here}}
    able["onednn"] = replace(able["onednn"], takes=dict.fromkeys(library))
    kernels = select_kernels(graph, able)
    if pools:
        kernels |= {node: pools for node in graph.nodes if node.op.startswith("pool2d")}
    return lay_out(graph, kernels, able)[0]


def test_without_a_library_nothing_moves() -> None:
    graph = laid_out()
    assert not [value for value in graph.values() if value.layout]


def test_images_stay_channels_last_between_convolutions() -> None:
    graph = laid_out("conv2d", "conv2d_grad", "pool2d", "pool2d_grad")
    copies = [node for node in graph.nodes if node.op == TRANSFER]
    # x once, the pooled image to be flattened, and its gradient on the way back
    assert [str(n.reads()[0]).split("_")[0] for n in copies] == ["x", "pool2d", "pool2d"]
    for node in graph.nodes:
        if node.op in ("relu", "relu_grad", "elementwise_add"):
            images = [v for v in (*node.reads(), *node.writes()) if v.spec.shape[2:] == (6, 6)]
            assert {value.layout for value in images} <= {CHANNELS_LAST}, node
    for node in graph.nodes:
        assert all(v.layout == "" for v in node.writes() if v.spec.shape == (4, 3, 3, 3))


def test_images_are_joined_in_the_order_in_which_they_lie() -> None:
    with own_programs() as (main, _):
        x = fluid.layers.data("x", [3, 8, 8])
        parts = [fluid.layers.conv2d(x, 4, 3) for _ in range(2)]
        h = fluid.layers.conv2d(fluid.layers.concat(parts, 1), 4, 3)
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(h))
    graph = from_program(main, ["x"])
    able = {**capabilities(frozenset()), "llvm": back_end("llvm", frozenset({"llvm"}))}
    able["onednn"] = back_end("onednn", frozenset({"onednn"}))
    graph = lay_out(graph, select_kernels(graph, able), able)[0]
    for node in graph.nodes:
        if node.op in ("concat", "concat_grad"):
            assert all(value.layout == CHANNELS_LAST for value in (*node.reads(), *node.writes()))
    assert not [n for n in graph.nodes if n.op == TRANSFER and "concat" in str(n.reads()[0])]


def test_loops_normalize_what_never_lies_channels_last() -> None:
    with own_programs() as (main, _):
        shapes = [8, 6], [8, 4, 6], [8, 2, 4, 6], [2, 4, 6, 8]
        data = [fluid.layers.data(f"x{i}", list(shape)) for i, shape in enumerate(shapes)]
        for x in data[:3]:
            fluid.layers.batch_norm(x)
        fluid.layers.batch_norm(data[3], data_layout="NHWC")
    graph = from_program(main, [x.name for x in data])
    here = frozenset({"onednn", "llvm"})
    able = {**capabilities(frozenset()), **{name: back_end(name, here) for name in sorted(here)}}
    kernels = select_kernels(graph, able)
    by_norm = [kernels[node] for node in graph.nodes if node.op == "batch_norm"]
    assert by_norm == ["llvm", "onednn", "llvm", "onednn"]
    placed = lay_out(graph, kernels, able)[0]
    assert not [value for value in placed.values() if value.layout], "no convolution asks for it"


def test_pooling_on_a_gpu_takes_images_as_they_come() -> None:
    for library, layout in ((("conv2d", "conv2d_grad"), CHANNELS_LAST), ((), "")):
        graph = laid_out(*library, pools="cuda")
        pools = [node for node in graph.nodes if node.op.startswith("pool2d")]
        assert {v.layout for node in pools for v in (*node.reads(), *node.writes())} == {layout}


def test_what_other_ops_read_is_in_the_order_of_its_shape() -> None:
    graph = laid_out("conv2d", "conv2d_grad")
    for node in graph.nodes:
        if node.op in ("pool2d", "mul", "pool2d_grad"):
            assert all(value.layout == "" for value in node.reads())


def test_an_array_has_the_shape_of_its_value_in_either_layout() -> None:
    flat = np.arange(2 * 3 * 4 * 5.0)
    image = shaped(flat, (2, 3, 4, 5), CHANNELS_LAST)
    assert image.shape == (2, 3, 4, 5)
    assert image[0, 1, 0, 0] == 1.0 and image[0, 0, 0, 1] == 3.0
    assert np.shares_memory(image, flat)


def on_gpu(kind: str, math: str = "float32") -> tuple[Graph, dict[str, set[str]]]:
    """Lay out a residual block for a GPU; return it, and which libraries compute which op."""
    with own_programs() as (main, _):
        x = fluid.layers.cast(fluid.layers.data("x", [8, 8, 8]), kind)
        h = fluid.layers.conv2d(x, 8, 3, padding=1, bias_attr=False)
        h = fluid.layers.relu(fluid.layers.batch_norm(h))
        h = fluid.layers.elementwise_add(
            x, fluid.layers.conv2d(h, 8, 3, padding=1, bias_attr=False)
        )
        h = fluid.layers.pool2d(h, pool_size=2, pool_stride=2)
        loss = fluid.layers.mean(fluid.layers.cast(fluid.layers.flatten(h), "float32"))
        fluid.optimizer.SGD(0.1).minimize(loss)
    graph = from_program(main, ["x"])
    able = capabilities(frozenset(("cudnn", "cublaslt", "cuda")))
    selected = select_kernels(graph, able, "cupy")
    graph, kernels = lay_out(graph, selected, able, "cupy", math)
    by_op: dict[str, set[str]] = {}
    for node in graph.nodes:
        by_op.setdefault(node.op, set()).add(kernels[node])
    return graph, by_op


def test_low_precision_images_lie_channels_last_on_a_gpu() -> None:
    for kind, math in (("float16", "float32"), ("bfloat16", "float32"), ("float32", "tf32")):
        graph, by_op = on_gpu(kind, math)
        assert by_op["conv2d"] == by_op["conv2d_grad"] == {"cudnn"}
        assert by_op["batch_norm"] == {"cuda" if kind == "float32" else "cudnn"}
        assert by_op["pool2d"] == by_op[TRANSFER] == {"cuda"}
        moved = [n for n in graph.nodes if n.op in ("conv2d", "batch_norm", "relu", "pool2d")]
        for node in moved:
            images = [v for v in (*node.reads(), *node.writes()) if v.spec.shape[0] == -1]
            assert {value.layout for value in images} == {CHANNELS_LAST}, node
        copied = [str(n.reads()[0]).split("_")[0] for n in graph.nodes if n.op == TRANSFER]
        assert len(copied) == 3, copied  # x, the pooled image, and its gradient


def test_exact_single_precision_stays_in_order_on_a_gpu() -> None:
    graph, by_op = on_gpu("float32")
    assert by_op["conv2d"] == {"cudnn"}
    assert not [value for value in graph.values() if value.layout]


def test_transposed_convolutions_keep_channels_last() -> None:
    """A decoder: x is turned once, what fc reads once, and its gradient on the way back."""
    with own_programs() as (main, _):
        x = fluid.layers.data("x", [3, 4, 4])
        h = fluid.layers.conv2d_transpose(x, 4, filter_size=2, stride=2, act="relu")
        h = fluid.layers.conv2d_transpose(h, 4, filter_size=4, stride=2, padding=1)
        loss = fluid.layers.mean(fluid.layers.fc(h, 2))
        fluid.optimizer.SGD(0.1).minimize(loss)
    graph = from_program(main, ["x"])
    able = {**capabilities(frozenset()), "onednn": back_end("onednn", frozenset(("onednn",)))}
    graph, _ = lay_out(graph, select_kernels(graph, able), able)
    copied = [str(n.reads()[0]).split(".")[0] for n in graph.nodes if n.op == TRANSFER]
    assert copied == ["x", "conv2d_transpose_1", "conv2d_transpose_1"]
    relu = next(node for node in graph.nodes if node.op == "relu")
    assert {v.layout for v in (*relu.reads(), *relu.writes())} == {CHANNELS_LAST}
