"""Descriptions of ``dnn.py`` as graphs of cuDNN's frontend.

Operands have the numbers 1, 2, … in the order in which a description names them. Nothing here needs a GPU if
the properties of one are given instead of a handle.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from .dnn import LOW, Attention, AttentionGrad, BatchNorm, BatchNormGrad, Convolution, Graph, Tensor

# Bytes of scratch memory that a call may take at most. With less there is no exact convolution of large images.
# The gradient of attention sums parts in order, which takes memory that grows with the square of the length.
_WORKSPACE, _WORKSPACE_ELSE = 512 << 20, 8 << 30


def planned(graph: Graph, **where: Any) -> Any:
    """Return a graph with the plans that cuDNN would try; ``where``: its ``handle``, or ``device_property``.

    Raises:
        Exception: cuDNN cannot compute it (it has several classes of errors for that).
    """
    cudnn = _frontend()
    made = described(graph, **where)
    made.validate()
    made.build_operation_graph()
    made.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    made.deselect_numeric_notes(_refused(graph))
    most = _WORKSPACE if isinstance(graph, Convolution) else _WORKSPACE_ELSE
    made.deselect_workspace_greater_than(most)
    made.check_support()
    return made


def described(graph: Graph, **where: Any) -> Any:
    """Return a graph without plans."""
    made = _Builder(graph, where)
    _DESCRIBE[type(graph)](made, graph)
    return made.graph


def _frontend() -> Any:
    return importlib.import_module("cudnn")


def _refused(graph: Graph) -> list[Any]:
    """Return what its plans may not do: give other bits in another run, or round float32 factors."""
    notes = _frontend().numerical_note
    refused = [notes.NONDETERMINISTIC]
    if isinstance(graph, Convolution) and graph.exact and graph.x.dtype not in LOW:
        refused += [notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS]
    return refused


class _Builder:
    """A graph under construction."""

    def __init__(self, graph: Graph, where: dict[str, Any]) -> None:
        self.cudnn = _frontend()
        types = self.cudnn.data_type
        self._types = {"float32": types.FLOAT, "float16": types.HALF, "bfloat16": types.BFLOAT16}
        self._operands = graph.operands
        self._numbers = {name: i for i, name in enumerate(graph.operands, 1)}
        self._free = len(self._numbers) + 1
        self.io = self._types[next(iter(graph.operands.values())).dtype]
        self.graph = self.cudnn.pygraph(
            name=type(graph).__name__,
            io_data_type=self.io,
            intermediate_data_type=types.FLOAT,
            compute_data_type=types.FLOAT,
            **where,
        )

    def read(self, *names: str) -> list[Any]:
        """Return operands that are read."""
        return [self._tensor(n, self._operands[n], self._numbers[n]) for n in names]

    def unused(self, like: str, name: str) -> Any:
        """Return an operand that cuDNN asks for and nobody else knows."""
        return self._tensor(name, self._operands[like], self.number())

    def number(self) -> int:
        """Return a number for one more operand."""
        self._free += 1
        return self._free - 1

    def _tensor(self, name: str, told: Tensor, number: int) -> Any:
        return self.graph.tensor(
            name=name,
            dim=list(told.shape),
            stride=list(told.strides),
            data_type=self._types[told.dtype],
            uid=number,
        )

    def write(self, name: str, made: Any, number: int = 0) -> None:
        """Let a result be written to an operand."""
        told = self._operands[name]
        made.set_output(True).set_data_type(self._types[told.dtype])
        made.set_dim(list(told.shape)).set_stride(list(told.strides))
        made.set_uid(number or self._numbers[name])

    def number_of(self, value: float) -> Any:
        """Return a number as an operand."""
        return self.graph.tensor_scalar(value, self.cudnn.scalar_type.RUNTIME_PARAM)


def _convolution(made: _Builder, conv: Convolution) -> None:
    how = {
        "pre_padding": list(conv.before),
        "post_padding": list(conv.after),
        "stride": list(conv.strides),
        "dilation": list(conv.dilations),
    }
    if conv.result == "y":
        x, w = made.read("x", "w")
        made.write("y", made.graph.conv_fprop(image=x, weight=w, **how))
    elif conv.result == "x":
        d_y, w = made.read("y", "w")
        made.write("x", made.graph.conv_dgrad(loss=d_y, filter=w, **how))
    else:
        x, d_y = made.read("x", "y")
        made.write("w", made.graph.conv_wgrad(image=x, loss=d_y, **how))


def extra(graph: Graph) -> list[int]:
    """Return the bytes of further operands, numbered behind those of the description, which nobody else uses.

    cuDNN insists on running statistics, and divides their variance by one less than there are elements.
    """
    return [4 * graph.x.shape[1]] * 4 if isinstance(graph, BatchNorm) else []


def _batch_norm(made: _Builder, norm: BatchNorm) -> None:
    x, scale, bias = made.read("x", "scale", "bias")
    running = [made.unused("mean", f"running {name}") for name in ("mean", "variance")]
    y, mean, inverse, *unused = made.graph.batchnorm(
        input=x,
        scale=scale,
        bias=bias,
        in_running_mean=running[0],
        in_running_var=running[1],
        epsilon=made.number_of(norm.epsilon),
        momentum=made.number_of(0.0),
    )
    if norm.adds:
        y = made.graph.add(y, *made.read("z"))
    if norm.relu:
        y = made.graph.relu(y)
    for name, result in (("y", y), ("mean", mean), ("inverse", inverse)):
        made.write(name, result)
    for result in unused:
        made.write("mean", result, made.number())


def _batch_norm_grad(made: _Builder, norm: BatchNormGrad) -> None:
    x, scale, mean, inverse, d_y = made.read("x", "scale", "mean", "inverse", "d_y")
    if norm.relu:  # cuDNN finds the pattern if these are the very tensors of the gradient
        (bias,) = made.read("bias")
        y = made.graph.batchnorm_inference(
            input=x, mean=mean, inv_variance=inverse, scale=scale, bias=bias
        )
        d_y = made.graph.relu_backward(d_y, y)
        d_y.set_data_type(made.io)
    results = made.graph.batchnorm_backward(
        grad=d_y, input=x, scale=scale, mean=mean, inv_variance=inverse
    )
    for name, result in zip(norm.results, results, strict=True):
        made.write(name, result)


def _mask(made: _Builder, attention: Attention) -> dict[str, Any]:
    return {} if attention.mask is None else {"bias": made.read("mask")[0]}


def _attention(made: _Builder, attention: Attention) -> None:
    q, k, v = made.read("q", "k", "v")
    mask = _mask(made, attention)
    out, stats = made.graph.sdpa(
        q=q, k=k, v=v, generate_stats=True, attn_scale=attention.scale, **mask
    )
    made.write("out", out)
    made.write("stats", stats)


def _attention_grad(made: _Builder, grad: AttentionGrad) -> None:
    q, k, v, out, d_out, stats = made.read("q", "k", "v", "out", "d_out", "stats")
    more = _mask(made, grad.forward)
    if grad.d_mask is not None:
        more["dBias"] = made.read("d_mask")[0]
    results = made.graph.sdpa_backward(
        q=q, k=k, v=v, o=out, dO=d_out, stats=stats,
        attn_scale=grad.forward.scale, use_deterministic_algorithm=True, **more,
    )  # fmt: skip
    for name, result in zip(("d_q", "d_k", "d_v"), results, strict=True):
        made.write(name, result)


_DESCRIBE: dict[type, Callable[[_Builder, Any], None]] = {
    Convolution: _convolution,
    BatchNorm: _batch_norm,
    BatchNormGrad: _batch_norm_grad,
    Attention: _attention,
    AttentionGrad: _attention_grad,
}
