"""Descriptions of ``dnn.py`` as graphs of cuDNN's frontend.

Operands have the numbers 1, 2, … in the order in which a description names them. Nothing here needs a GPU if
the properties of one are passed instead of a handle.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from .dnn import LOW, Attention, AttentionGrad, BatchNorm, BatchNormGrad, Convolution, Graph, Tensor

# Bytes of scratch memory that a call may take at most. With less there is no exact convolution of large images.
# The gradient of attention sums parts in order, which takes memory that grows with the square of the length.
_WORKSPACE, _WORKSPACE_ELSE = 512 << 20, 8 << 30


def plan_graph(graph: Graph, **device: Any) -> Any:
    """Return a graph with cuDNN's candidate plans; ``device``: its ``handle``, or ``device_property``.

    Raises:
        Exception: cuDNN cannot compute it (it has several classes of errors for that).
    """
    cudnn = _frontend()
    plans = describe_graph(graph, **device)
    plans.validate()
    plans.build_operation_graph()
    plans.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    plans.deselect_numeric_notes(_refused_notes(graph))
    most = _WORKSPACE if isinstance(graph, Convolution) else _WORKSPACE_ELSE
    plans.deselect_workspace_greater_than(most)
    plans.check_support()
    return plans


def describe_graph(graph: Graph, **device: Any) -> Any:
    """Return a graph without plans."""
    builder = _Builder(graph, device)
    _DESCRIBE[type(graph)](builder, graph)
    return builder.graph


def _frontend() -> Any:
    return importlib.import_module("cudnn")


def _refused_notes(graph: Graph) -> list[Any]:
    """Return the notes of plans to leave out: other bits in another run, or rounded float32 factors."""
    notes = _frontend().numerical_note
    refused = [notes.NONDETERMINISTIC]
    if isinstance(graph, Convolution) and graph.exact and graph.x.dtype not in LOW:
        refused += [notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS]
    return refused


class _Builder:
    """A graph under construction."""

    def __init__(self, graph: Graph, device: dict[str, Any]) -> None:
        self.cudnn = _frontend()
        types = self.cudnn.data_type
        self._types = {
            "float32": types.FLOAT,
            "float16": types.HALF,
            "bfloat16": types.BFLOAT16,
            "uint8": types.BOOLEAN,
            "int64": types.INT64,
        }
        first = next(iter(graph.operands.values()))
        self._operands = {  # what lies in bytes is a mask, and has a bit for each element
            name: first._replace(dtype="uint8") if operand.dtype == "uint8" else operand
            for name, operand in graph.operands.items()
        }
        self._numbers = {name: i for i, name in enumerate(graph.operands, 1)}
        self._free = len(self._numbers) + 1
        self.io = self._types[first.dtype]
        self.graph = self.cudnn.pygraph(
            name=type(graph).__name__,
            io_data_type=self.io,
            intermediate_data_type=types.FLOAT,
            compute_data_type=types.FLOAT,
            **device,
        )

    def read(self, *names: str) -> list[Any]:
        """Return operands that are read."""
        return [self._tensor(n, self._operands[n], self._numbers[n]) for n in names]

    def unused(self, like: str, name: str) -> Any:
        """Return an operand that only cuDNN requires."""
        return self._tensor(name, self._operands[like], self.number())

    def number(self) -> int:
        """Return a number for one more operand."""
        self._free += 1
        return self._free - 1

    def _tensor(self, name: str, operand: Tensor, number: int) -> Any:
        return self.graph.tensor(
            name=name,
            dim=list(operand.shape),
            stride=list(operand.strides),
            data_type=self._types[operand.dtype],
            uid=number,
        )

    def write(self, name: str, result: Any, number: int = 0) -> None:
        """Let a result be written to an operand."""
        operand = self._operands[name]
        result.set_output(True).set_data_type(self._types[operand.dtype])
        result.set_dim(list(operand.shape)).set_stride(list(operand.strides))
        result.set_uid(number or self._numbers[name])

    def number_of(self, value: float) -> Any:
        """Return a number as an operand."""
        return self.graph.tensor_scalar(value, self.cudnn.scalar_type.RUNTIME_PARAM)


def _convolution(builder: _Builder, conv: Convolution) -> None:
    windows = {
        "pre_padding": list(conv.before),
        "post_padding": list(conv.after),
        "stride": list(conv.strides),
        "dilation": list(conv.dilations),
    }
    if conv.result == "y":
        x, w = builder.read("x", "w")
        builder.write("y", builder.graph.conv_fprop(image=x, weight=w, **windows))
    elif conv.result == "x":
        d_y, w = builder.read("y", "w")
        d_x = builder.graph.conv_dgrad(loss=d_y, filter=w, **windows)
        if conv.addend is not None:
            d_x.set_dim(list(conv.x.shape)).set_stride(list(conv.x.strides))
            d_x = builder.graph.add(d_x, *builder.read("addend"))
        builder.write("x", d_x)
    else:
        x, d_y = builder.read("x", "y")
        builder.write("w", builder.graph.conv_wgrad(image=x, loss=d_y, **windows))


def extra(graph: Graph) -> list[int]:
    """Return the bytes of operands that only cuDNN requires, numbered behind those of the description.

    cuDNN insists on running statistics, and divides their variance by the number of elements less one.
    """
    return [4 * graph.x.shape[1]] * 4 if isinstance(graph, BatchNorm) else []


def _batch_norm(builder: _Builder, norm: BatchNorm) -> None:
    x, scale, bias = builder.read("x", "scale", "bias")
    running = [builder.unused("mean", f"running {name}") for name in ("mean", "variance")]
    y, mean, inverse, *unused = builder.graph.batchnorm(
        input=x,
        scale=scale,
        bias=bias,
        in_running_mean=running[0],
        in_running_var=running[1],
        epsilon=builder.number_of(norm.epsilon),
        momentum=builder.number_of(0.0),
    )
    if norm.adds:
        y = builder.graph.add(y, *builder.read("z"))
    if norm.relu:
        y = builder.graph.relu(y)
    if norm.masks:  # no engine takes another comparison, or the sum before its relu
        builder.write("mask", builder.graph.cmp_gt(y, builder.number_of(0.0)))
    for name, result in (("y", y), ("mean", mean), ("inverse", inverse)):
        builder.write(name, result)
    for result in unused:
        builder.write("mean", result, builder.number())


def _batch_norm_grad(builder: _Builder, norm: BatchNormGrad) -> None:
    x, scale, mean, inverse, d_y = builder.read("x", "scale", "mean", "inverse", "d_y")
    if norm.relu:  # cuDNN matches the pattern only if these are the gradient's own tensors
        (bias,) = builder.read("bias")
        y = builder.graph.batchnorm_inference(
            input=x, mean=mean, inv_variance=inverse, scale=scale, bias=bias
        )
        d_y = builder.graph.relu_backward(d_y, y)
        d_y.set_data_type(builder.io)
    forked = []
    # No engine takes a choice by the mask: an infinite gradient that it stops is NaN.
    if norm.masked:
        d_y = builder.graph.mul(d_y, *builder.read("mask"))
        d_y.set_data_type(builder.io)
        forked = [d_y] if norm.forks else []
    results = builder.graph.batchnorm_backward(
        grad=d_y, input=x, scale=scale, mean=mean, inv_variance=inverse
    )
    for name, result in zip(norm.results, (*results, *forked), strict=True):
        builder.write(name, result)


def _options(builder: _Builder, attention: Attention) -> dict[str, Any]:
    """Return the arguments that attention and its gradient share."""
    options: dict[str, Any] = {"attn_scale": attention.scale}
    if attention.dropout:
        options["dropout"] = (attention.dropout, *builder.read("seed", "offset"))
    if attention.causal:
        options["diagonal_alignment"] = builder.cudnn.diagonal_alignment.TOP_LEFT
        options["diagonal_band_right_bound"] = 0
    elif attention.mask is not None:
        (options["bias"],) = builder.read("mask")
    return options


def _attention(builder: _Builder, attention: Attention) -> None:
    q, k, v = builder.read("q", "k", "v")
    options = _options(builder, attention)
    out, stats = builder.graph.sdpa(q=q, k=k, v=v, generate_stats=True, **options)
    builder.write("out", out)
    builder.write("stats", stats)


def _attention_grad(builder: _Builder, grad: AttentionGrad) -> None:
    q, k, v, out, d_out, stats = builder.read("q", "k", "v", "out", "d_out", "stats")
    options = _options(builder, grad.forward)
    if grad.d_mask is not None:
        options["dBias"] = builder.read("d_mask")[0]
    results = builder.graph.sdpa_backward(
        q=q, k=k, v=v, o=out, dO=d_out, stats=stats, use_deterministic_algorithm=True, **options
    )
    for name, result in zip(("d_q", "d_k", "d_v"), results, strict=True):
        builder.write(name, result)


_DESCRIBE: dict[type, Callable[[_Builder, Any], None]] = {
    Convolution: _convolution,
    BatchNorm: _batch_norm,
    BatchNormGrad: _batch_norm_grad,
    Attention: _attention,
    AttentionGrad: _attention_grad,
}
