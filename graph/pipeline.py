"""The compiler: one tuple of passes, run in order, each checked."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from ..strategies.errors import ShapeError
from .ir.graph import TEMP, Graph, infer_node
from .ops.registry import Spec
from .passes import (
    build_cinn_pass,
    collectives,
    commit,
    draw_noise,
    enable_addto,
    enable_auto_fusion,
    fold_conv_grad_sums,
    fold_decay,
    fold_residuals,
    fuse_bn,
    fuse_elewise_add_act,
    fuse_gemm_epilogue,
    fuse_optimizers,
    fuse_relu_depthwise_conv,
    fused_attention,
    fused_feedforward,
    keep_relu_masks,
    narrow_casts,
    order,
    overwritten_states,
    place_updates,
    reduce_in_float32,
    scale_loss_gradient,
    score_loss,
    sparse_rows,
    split_conv_grads,
    split_loss_scaling,
    sync_batch_norm,
    unread_gradients,
    wide_loss,
)
from .passes.target import Pass, Target
from .report.pictures import places_dot, program_dot, write_picture
from .report.report import PassRecord, to_dot

PIPELINE: tuple[Pass, ...] = (
    unread_gradients.PASS,
    draw_noise.PASS,
    narrow_casts.PASS,
    score_loss.PASS,
    wide_loss.PASS,
    sync_batch_norm.PASS,
    enable_addto.PASS,
    fuse_relu_depthwise_conv.PASS,
    fuse_bn.ALONE,
    fuse_bn.WITH_SUM,
    keep_relu_masks.PASS,
    fused_attention.PASS,
    fused_feedforward.PASS,
    fuse_gemm_epilogue.PASS,
    fuse_elewise_add_act.PASS,
    scale_loss_gradient.PASS,
    sparse_rows.PASS,
    fold_decay.PASS,
    fold_residuals.GRADIENTS,
    enable_auto_fusion.PASS,
    fold_residuals.SUMS,
    split_conv_grads.PASS,
    fold_conv_grad_sums.PASS,
    reduce_in_float32.PASS,
    collectives.INSERT,
    collectives.COALESCE,
    split_loss_scaling.PASS,
    place_updates.PASS,
    fuse_optimizers.ADAMW,
    fuse_optimizers.ALL,
    order.DELAY,
    order.BARRIER_AT_END,
    commit.PASS,
    overwritten_states.PASS,
    order.ORDER,
    build_cinn_pass.PASS,
)


class Stage(NamedTuple):
    """The graph before and after a pass that changed it, and whether values must be the same in both."""

    name: str
    before: Graph
    after: Graph
    keeps_values: bool


def run_pipeline(
    graph: Graph, target: Target, stages: list[Stage] | None = None
) -> tuple[Graph, list[PassRecord]]:
    """Run every pass that is on, and check the graph after each.

    With ``debug_graphviz_path`` Paddle's three pictures are written, and a numbered ``.dot`` after each pass.
    The graphs before and after each pass are appended to ``stages``, if that is a list.

    Raises:
        AssertionError: a pass broke the graph; the message names the pass and the node.
        ShapeError: the program is wrong as it was read.
    """
    original = graph
    records: list[PassRecord] = []
    draw = _Pictures(target)
    draw("original_graph", program_dot, graph)
    for entry in PIPELINE:
        if entry in _DRAWN_BEFORE:
            name, how = _DRAWN_BEFORE[entry]
            draw(name, how, graph)
        if not entry.is_on(target):
            continue
        start = time.perf_counter()
        result = entry.run(graph, target)
        if result is not graph:
            try:
                check(result, entry.name)
            except AssertionError:
                for node in original.nodes:
                    infer_node(node, lambda value: value.spec)
                raise
        seconds = time.perf_counter() - start
        same = result.nodes == graph.nodes
        records.append(
            PassRecord(entry.name, len(graph.nodes), len(result.nodes), not same, seconds)
        )
        if stages is not None and not same:
            stages.append(Stage(entry.name, graph, result, entry.keeps_values))
        graph = result
        draw(f"{len(records):02d}_{entry.name}.dot", to_dot, graph)
    return graph, records


# Paddle draws pictures once everything on one place is fused, and once collectives are inserted.
_DRAWN_BEFORE: dict[Pass, tuple[str, Callable[..., str]]] = {
    collectives.INSERT: ("fused_graph", program_dot),
    order.DELAY: ("multi_devices_graph", places_dot),
}


class _Pictures:
    """Writes pictures behind ``debug_graphviz_path``, if the user gave one."""

    def __init__(self, target: Target) -> None:
        path = target.strategy.debug_graphviz_path if target.strategy is not None else ""
        self._path = f"{path}{target.part}" if path else ""
        self._replicas = target.replicas

    def __call__(self, name: str, how: Callable[..., str], graph: Graph) -> None:
        if self._path:
            text = how(graph, self._replicas) if how is places_dot else how(graph)
            write_picture(text, Path(f"{self._path}_{name}"))


def check(graph: Graph, pass_name: str) -> None:
    """Assert that every value is computed once, before it is read, and has the spec that its node derives.

    A derived spec may have a size that the declared one leaves unknown. Name and version tell values apart.
    """
    computed = set(graph.feeds)
    names = {(value.name, value.version) for value in graph.feeds}
    for node in graph.nodes:
        for value in node.reads():
            is_known = value in computed or (value.version == 0 and value.kind != TEMP)
            assert is_known, f"{pass_name}: {node} reads {value} before it is made\n{graph}"
        for value in node.writes():
            name = value.name, value.version
            assert name not in names, f"{pass_name}: {node} makes {value} again\n{graph}"
            names.add(name)
        computed.update(node.writes())
        try:
            specs = infer_node(node, lambda value: value.spec)
        except ShapeError as error:
            raise AssertionError(f"{pass_name} broke {node}: {error}\n{graph}") from error
        for slot, values in node.outputs.items():
            for made_value, spec in zip(values, specs.get(slot, ()), strict=False):
                assert made_value is None or _agree(made_value.spec, spec), (
                    f"{pass_name}: {node}: {made_value} is {made_value.spec}, derived {spec}"
                )


def _agree(declaration: Spec, derived: Spec) -> bool:
    """Tell whether two specs agree, except for sizes that are not declared.

    Paddle's files have no sizes for results of a beam search, and a size of 0 for values computed from them.
    """
    if declaration == derived:
        return True
    if declaration.shape == (0,) and not derived.shape:
        return declaration.dtype == derived.dtype
    pairs = zip_longest(declaration.shape, derived.shape)
    return declaration.dtype == derived.dtype and all(
        a in (b, -1) and b is not None for a, b in pairs
    )
