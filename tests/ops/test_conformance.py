"""Walks every declared op and checks what its declaration promises.

An op is covered as soon as it is declared: add a reference to ``reference/<family>.py`` and samples to the
declaration. What only one op has (an edge of its domain, say) belongs in a file of its own.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.kernels.registry import BACK_ENDS, KERNELS
from rowlock.graph.ops.collective import COLLECTIVES
from rowlock.graph.ops.host_call import HOST_CALL
from rowlock.graph.ops.registry import OPS, Op, Spec
from rowlock.graph.ops.shapes import Sized
from rowlock.strategies.errors import ShapeError
from rowlock.strategies.types import FLOATS, VarType, is_float, to_var_type
from tests.conftest import SEED, sample
from tests.ops.harness import (
    Arrays,
    copies,
    draw,
    gradients,
    infer,
    repeated,
    run,
    run_strided,
    specs_of,
    updates,
)
from tests.ops.reference import REFERENCE

FILES = Path(__file__).parents[1] / "reference"
PROTOS = json.loads((FILES / "protos.json").read_text())
FILLED_IN = json.loads((FILES / "op_attrs.json").read_text())
RANDOM = {name for name, op in OPS.items() if op.random}  # checked in test_random.py
# Slots and attributes that updates got in Paddle 2.x, those that tell its arithmetic apart, and drawn noise.
LATER = {
    "MasterParam?", "SkipUpdate?", "MasterParamOut?", "multi_precision", "Beta1PowOut?", "Beta2PowOut?",
    "always_adapt", "corrects_bias", "powers_first", "scales_epsilon", "LearningRate?", "with_rate", "Noise?",
}  # fmt: skip
LEFT_OUT_LATER = {"instance_norm": ("Scale", "Bias")}  # inputs that Paddle 2.x can do without
LATER_ATTRIBUTES = {
    "nearest_interp": {"scales"},
    "bilinear_interp": {"scales"},
    "trilinear_interp": {"scales"},
    "bicubic_interp": {"scales"},
    "affine_grid": {"align_corners"},
    "grid_sampler": {"align_corners", "mode", "padding_mode"},
    "conv2d_transpose": {"output_padding"},
    "conv3d_transpose": {"output_padding"},
    "depthwise_conv2d_transpose": {"output_padding"},
    "max_pool2d_with_index": {"ceil_mode"},
    "max_pool3d_with_index": {"ceil_mode"},
    "unpool": {"output_size"},
    "roi_align": {"aligned"},
    "generate_proposals": {"pixel_offset"},
    "distribute_fpn_proposals": {"pixel_offset"},
}
# of the activation in fused_elemwise_activation; missing from the list of prototypes; folded into updates
OURS = {"act_attrs", "child_nums", "l2_decay"}
# Paddle makes a gradient op for these where none belongs.
NO_SLOPE = {"increment"}  # counts a loop's steps back
# Computed beside the GPU: py_func by Python, and most others on CPUs in Paddle, too.
HOST_ONLY = {
    *("dgc", "py_func", "precision_recall", "positive_negative_pair"),
    *("chunk_eval", "edit_distance", "ctc_align"),
    *("where_index", "unique", "unique_with_counts"),
    "attention_lstm",
    *("filter_by_instag", "filter_by_instag_grad", "lod_tagged"),
    *("pyramid_terms", "pyramid_ids", "lod_of_terms"),
    *("beam_search", "lod_selected", HOST_CALL),
    *("print", "print_if", "lod_picked", "lod_rank_table", "max_sequence_len"),
    *("merge_lod_tensor", "split_lod_tensor"),
    *("reorder_lod_tensor_by_rank", "reorder_lod_tensor_by_rank_grad"),
    *("shrink_rnn_memory", "shrink_rnn_memory_grad"),
    *("sequence_topk_avg_pooling", "sequence_topk_avg_pooling_grad"),
    *("roi_pool", "roi_pool_grad", "roi_align", "roi_align_grad"),
    *("psroi_pool", "psroi_pool_grad", "prroi_pool", "prroi_pool_grad"),
    *("yolov3_loss", "yolov3_loss_grad", "multiclass_nms", "multiclass_nms2", "lod_of_choice"),
    *("bipartite_match", "target_assign", "mine_hard_examples", "lod_mined"),
    *("generate_proposals", "lod_of_proposals", "collect_fpn_proposals", "lod_collected"),
    *("distribute_fpn_proposals", "lod_distributed", "rpn_target_assign"),
    *("generate_proposal_labels", "lod_of_regions", "retinanet_target_assign"),
    *("retinanet_detection_output", "lod_of_detections", "detection_map", "lod_of_classes"),
    *("generate_mask_labels", "lod_of_masks", "matrix_nms", "lod_of_decayed"),
    *("locality_aware_nms", "lod_of_merged"),
}
GRADS = sorted({op.grad.type for op in OPS.values() if op.grad})
FORWARD = sorted(n for n, op in OPS.items() if op.samples and n not in COLLECTIVES | RANDOM)
CASES = [(name, i) for name in FORWARD for i in range(len(OPS[name].samples))]
# Their gradients have the sequences that a program gives them: programs in tests/reference/dynamic_nets.py do.
IN_PROGRAMS = {
    *(
        ("merge_lod_tensor", 1),
        ("reorder_lod_tensor_by_rank", 0),
        ("reorder_lod_tensor_by_rank", 2),
    ),
    *(("split_lod_tensor", i) for i in (1, 2, 3)),
}
DIFFERENTIABLE = [(n, i) for n, i in CASES if OPS[n].grad and (n, i) not in IN_PROGRAMS]
# Slots of gradient ops of which kernels of arrays read no element: of parameters, which stay anyway; of
# gradients that are zeros; of numbers by sequence or by channel; of values whose sequences are read; and what
# kernels on GPUs, or ops that take the place of the gradient op, do read.
UNREAD = {
    *("ceil Out@GRAD", "floor Out@GRAD", "round Out@GRAD", "trunc Out@GRAD"),
    *("batch_norm Bias", "fused_batch_norm_act Bias", "fused_bn_add_activation Bias"),
    *("masked_bn_add_activation Bias", "masked_bn_add_activation Mask", "sync_batch_norm Bias"),
    *("layer_norm Bias", "data_norm bias", "inplace_abn SavedMean", "gru Bias", "gru Hidden"),
    *("lookup_table W", "lookup_table_v2 W", "fused_embedding_seq_pool W"),
    *("linear_chain_crf Transition", "rank_attention RankParam", "hierarchical_sigmoid PreOut"),
    *("sequence_topk_avg_pooling ROW", "sequence_topk_avg_pooling COLUMN"),
    *("var_conv_2d ROW", "var_conv_2d COLUMN", "split_lod_tensor X"),
    *("sequence_slice Length", "sequence_unpad Length"),
    *("deformable_psroi_pooling TopCount", "slogdeterminant Out"),
}
REFUSED = [(n, i) for n in sorted(OPS) for i in range(len(OPS[n].refuses))]
LIMITED = [(n, name) for n in sorted(OPS) if OPS[n].samples for name, _ in OPS[n].limits]
LINES = [name for name in sorted(OPS) if isinstance(OPS[name].shape, Sized) and OPS[name].samples]
ALONE = 12  # elements of an operand that move alone where its slope is measured


def test_every_forward_op_has_samples_and_a_reference() -> None:
    forward = {n for n in OPS if n not in GRADS or OPS[n].samples}
    assert {n for n in forward if not OPS[n].samples} == COLLECTIVES | {HOST_CALL}
    assert set(FORWARD) - set(REFERENCE) == set()


def test_every_result_of_a_gradient_op_may_be_left_out() -> None:
    """Programs want no gradients of labels: an op that demands its slot is refused where they are built."""
    slots = [(n, slot) for n in sorted(GRADS) if n in OPS for slot in OPS[n].output_slots]
    assert [(n, s.name) for n, s in slots if "@GRAD" in s.name and not s.optional] == []


def test_every_reference_is_of_a_declared_op() -> None:
    assert set(REFERENCE) - set(OPS) == set()


def test_every_op_can_run_on_both_back_ends_with_one_signature() -> None:
    able = capabilities()
    for name, op in OPS.items():
        if name in HOST_ONLY:
            continue
        for back_end in BACK_ENDS:
            assert name in able[back_end].takes, f"{name} has no kernel on {back_end}"
        kernels = [KERNELS.get((name, back_end)) for back_end in BACK_ENDS]
        derived = op.scalar is not None or op.formula is not None
        assert all(kernels) or not any(kernels) or derived, name
        signatures = {str(inspect.signature(k.function)) for k in kernels if k}
        assert len(signatures) <= 1, f"{name}: kernels differ in signature"
        if op.grad:
            assert op.grad.type in OPS, f"{name}'s gradient {op.grad.type} is not declared"


@pytest.mark.parametrize("name", sorted(set(OPS) & set(PROTOS)))
def test_slots_and_attributes_are_paddles(name: str) -> None:
    theirs, op = PROTOS[name], OPS[name]
    if name == "py_func":  # Paddle's has no mark for what may be left out
        assert (op.inputs, op.outputs) == (("X*?",), ("Out*?",))
        return
    # Slots that stand for attributes, if in use, and those of 2.x
    left_out = {f"{slot}?" for slot in (*op.numbers, *LEFT_OUT_LATER.get(name, ()))}
    left_out -= set(theirs["in"])
    inputs = {slot.rstrip("?") if slot in left_out else slot for slot in op.inputs}
    assert inputs - LATER == set(theirs["in"])
    outputs = {slot.rstrip("~") for slot in theirs["out"]}
    # An output that only the backward pass reads may be left out here.
    assert {slot.rstrip("?") if f"{slot.rstrip('?')}~" in theirs["out"] else slot
            for slot in op.outputs if slot not in LATER} == outputs  # fmt: skip
    by_slots = {"dtype"} if op.numbers_dtype else set()
    for attr in op.numbers.values():
        by_slots |= {attr} if isinstance(attr, str) else set(attr)
    ours = set(op.attrs) - LATER - OURS - LATER_ATTRIBUTES.get(name, set())
    assert ours - (by_slots - set(theirs["attrs"])) == set(theirs["attrs"])


@pytest.mark.parametrize("name", sorted(set(OPS) & set(FILLED_IN)))
def test_defaults_and_gradient_slots_are_paddles(name: str) -> None:
    """As Paddle fills them in when an op is appended and its gradient made."""
    theirs, op = FILLED_IN[name], OPS[name]
    if "gradient_of" in theirs:
        assert {slot.name for slot in op.input_slots} == set(theirs["inputs"])
        assert {slot.name for slot in op.output_slots} == set(theirs["outputs"])
        return
    for attr, entry in theirs["attrs"].items():
        if attr not in theirs["given"]:
            assert op.attrs[attr] == pytest.approx(entry["value"]), attr
    if name not in NO_SLOPE:
        assert (op.grad is None) == (theirs["grad"] is None)
    if op.grad and theirs["grad"]:
        unused = {slot for slot, marks in theirs["inputs"].items() if "dispensable" in marks}
        assert op.grad.type == theirs["grad"]["type"]
        assert set(op.grad.reads()) - unused == set(theirs["grad"]["inputs"]) - unused
        assert set(op.grad.writes()) == set(theirs["grad"]["outputs"])


def reference_of(op: Op, inputs: Arrays, attrs: dict[str, Any]) -> dict[str, list[Any]]:
    """What the reference says, computed in float64; a list for every slot."""
    many = {slot.name: slot.duplicable for slot in (*op.input_slots, *op.output_slots)}
    exact = {
        slot: [a.astype("float64") if a.dtype.kind == "f" else a for a in arrays]
        for slot, arrays in inputs.items()
    }
    with np.errstate(all="ignore"):
        results = REFERENCE[op.type](
            {s: a if many.get(s, True) else a[0] for s, a in exact.items()}, attrs
        )
    return {slot: list(value) if many[slot] else [value] for slot, value in results.items()}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "index"), CASES)
def test_kernel_agrees_with_the_reference(name: str, index: int, dtype: str) -> None:
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[index], dtype)
    specs = infer(op, specs_of(inputs), attrs, inputs)
    outputs = run(op, inputs, attrs)
    for slot, values in reference_of(op, inputs, attrs).items():
        for array, spec, value in zip(outputs[slot], specs[slot], values, strict=True):
            assert Spec(array.shape, to_var_type(array.dtype)) == spec
            assert np.shape(value) == array.shape, slot
            near = 2e-5 if np.float32 in (array.dtype, np.dtype(dtype)) else 1e-9
            np.testing.assert_allclose(array, value, rtol=near, atol=near)
    for slot, arrays in outputs.items():
        for array in arrays:
            written = array.dtype.kind != "f" or np.isfinite(array).all()
            assert written, f"{slot} is not written everywhere"


@pytest.mark.parametrize(("name", "index"), CASES)
def test_non_contiguous_operands(name: str, index: int) -> None:
    op = OPS[name]
    if updates(op):
        pytest.skip("updates live in a scope, where arrays are contiguous")
    inputs, attrs = draw(op, op.samples[index], "float64")
    strided = run_strided(op, inputs, attrs)
    for slot, arrays in run(op, inputs, attrs).items():
        for plain, other in zip(arrays, strided[slot], strict=True):
            np.testing.assert_allclose(plain, other, rtol=1e-12)


@pytest.mark.parametrize(("name", "index"), [(n, i) for n, i in CASES if OPS[n].in_place])
def test_outputs_may_take_the_place_of_operands(name: str, index: int) -> None:
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[index], "float64")
    beside, instead = run(op, inputs, attrs), run(op, inputs, attrs, overwrite=True)
    for slot, arrays in beside.items():
        for one, other in zip(arrays, instead[slot], strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("name", "index"), CASES)
def test_unknown_batch_is_inferred(name: str, index: int) -> None:
    """With the first dimension of X unknown, every other size is what it is when all are known."""
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[index], "float32")
    if "Param" in inputs or attrs.get("axes") == []:
        pytest.skip("parameters have known sizes; a squeeze of every 1 depends on them")
    known = specs_of(inputs)
    fed = {"X", "Input", "Label", "Labels", "Y", "Logits", "Ids", "Index", "Condition", "Predicted"}
    batch = [a.shape[0] for slot in fed & set(inputs) for a in inputs[slot]]
    together = len(set(batch)) == 1 and name not in ("mul", "matmul")
    slots = fed if together else {next(iter(inputs), "")}
    unknown = {
        slot: [s._replace(shape=(-1, *s.shape[1:])) if slot in slots else s for s in specs]
        for slot, specs in known.items()
    }
    exact, guessed = infer(op, known, attrs, inputs), infer(op, unknown, attrs)
    for slot, specs in exact.items():
        for one, other in zip(specs, guessed[slot], strict=True):
            assert one.dtype == other.dtype
            assert len(one.shape) == len(other.shape), (one, other)
            fits = all(b in (a, -1) for a, b in zip(one.shape, other.shape, strict=True))
            assert fits, (one, other)


# The extra outputs are for the backward pass or people, not part of what is differentiated.
SIDE = {
    "XShape", "MatchX", "SavedMean", "SavedVariance", "MeanOut", "VarianceOut", "Mean", "Variance",
    "Activated", "CentersOut", "Diff", "IntermediateVal", "SampleCenterDiff", "Total_weight", "Residual",
    "IntermediateOut", "ReserveSpace", "SoftmaxMax", "SoftmaxSum", "Ln1Mean", "Ln1Variance", "Means", "MidOut",
    "Norm", "Scales", "Tmp", "XNorm", "YNorm", "sub_result", "Gate", "ResetHiddenPrev", "PreOut", "W_Out",
    "BatchGate", "BatchCellPreAct", "BatchHidden", "BatchResetHiddenPrev", "Alpha", "EmissionExps",
    "TransitionExps", "WarpCTCGrad", "SampleLogits", "Probabilities", "LogSum", "Col",
}  # fmt: skip
NO_DERIVATIVE = {"cvm"}  # what its gradient op writes are counts
STATISTICS = {"BatchSize", "BatchSum", "BatchSquareSum"}  # data_norm's "gradients" of them are sums


def seeds_of(op: Op, outputs: Arrays) -> Arrays:
    """Draw a gradient for every output that has one."""
    rng = np.random.default_rng(1)
    side = SIDE | ({"Softmax"} if op.type == "softmax_with_cross_entropy" else set())
    return {
        slot: [rng.standard_normal(a.shape) for a in arrays]
        for slot, arrays in outputs.items()
        if slot not in side and arrays and is_float(arrays[0].dtype)
    }


def slope(total: Callable[[], float], array: Any, direction: Any) -> float:
    """The derivative of a sum as an operand moves along a direction, by central differences."""
    values, h = array.copy(), 1e-6
    array[...] = values + h * direction
    up = total()
    array[...] = values - h * direction
    down = total()
    array[...] = values
    return (up - down) / (2 * h)


def directions(array: Any) -> Iterator[Any]:
    """Yield moves of an element at a time, of many some that the seed draws; then all, each its own way."""
    for position in sample(array.size, min(array.size, ALONE)):
        unit = np.zeros_like(array)
        unit.flat[position] = 1
        yield unit
    yield np.random.default_rng(SEED).choice([-1.0, 1.0], array.shape)


@pytest.mark.parametrize(("name", "index"), DIFFERENTIABLE)
def test_gradient_against_differences(name: str, index: int) -> None:
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[index], "float64")
    outputs = run(op, inputs, attrs)
    seeds = seeds_of(op, outputs)
    if not seeds or not any(a.dtype.kind == "f" for many in inputs.values() for a in many):
        pytest.skip("integers have no slope")
    if name in NO_DERIVATIVE:
        pytest.skip("its gradient op writes something else")
    grads = gradients(op, copies(inputs), outputs, seeds, attrs)

    run_again = repeated(op, inputs, attrs)

    def total() -> float:
        sums = run_again()
        pairs = ((a, s) for slot in seeds for a, s in zip(sums[slot], seeds[slot], strict=True))
        return sum(float((a * s).sum()) for a, s in pairs)

    checked = 0
    for slot in grads:
        if slot not in inputs or to_var_type(inputs[slot][0].dtype) not in FLOATS:
            continue
        if slot in STATISTICS:
            continue
        for array, grad in zip(inputs[slot], grads[slot], strict=True):
            close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
            for direction in directions(array):
                close((grad * direction).sum(), slope(total, array, direction), err_msg=slot)
            checked += 1
    assert checked
    if OPS[op.grad.type].in_place:  # type: ignore[union-attr]
        instead = gradients(op, copies(inputs), outputs, seeds, attrs, overwrite=True)
        for slot, arrays in grads.items():
            for one, other in zip(arrays, instead[slot], strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("name", "index"), DIFFERENTIABLE)
def test_each_gradient_alone(name: str, index: int) -> None:
    """Nobody may want the other gradients: each comes out the same without them."""
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[index], "float64")
    outputs = run(op, inputs, attrs)
    seeds = seeds_of(op, outputs)
    if not seeds:
        pytest.skip("integers have no slope")
    full = gradients(op, inputs, outputs, seeds, attrs)
    for slot, grads in full.items():
        alone = gradients(op, inputs, outputs, seeds, attrs, only=slot)
        for one, other in zip(grads, alone[slot], strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", sorted({name for name, _ in DIFFERENTIABLE}))
def test_what_gradients_read_the_shape_of_alone_is_declared(name: str) -> None:
    """Else it stays in memory for them: see ``Op.shapes_of``."""
    op, unread, read = OPS[name], set[str](), set[str]()
    assert op.grad is not None
    declared = OPS[op.grad.type]
    for index in (i for n, i in DIFFERENTIABLE if n == name):
        inputs, attrs = draw(op, op.samples[index], "float64")
        outputs = run(op, inputs, attrs)
        seeds = seeds_of(op, outputs)
        whole = gradients(op, inputs, outputs, seeds, attrs) if seeds else {}
        shapes = declared.shape_slots(
            {**declared.attrs, **op.grad.attributes(attrs)}, op.grad.reads()
        )
        for slot, source in op.grad.reads().items() if seeds else ():
            arrays = inputs.get(source, outputs.get(source)) or seeds.get(
                source.removesuffix("@GRAD")
            )
            if slot in shapes or not arrays or not any(array.size for array in arrays):
                continue
            try:
                others = gradients(op, inputs, outputs, seeds, attrs, without=slot)
            except Exception:  # it refuses the elements, so it reads them
                read.add(slot)
                continue
            pairs = ((o, one) for s in whole for o, one in zip(others[s], whole[s], strict=True))
            same = all(one is None or np.array_equal(o, one, equal_nan=True) for o, one in pairs)
            (unread if same else read).add(slot)
    assert {f"{name} {slot}" for slot in unread - read} <= UNREAD


@pytest.mark.parametrize(("name", "index"), REFUSED)
def test_refused_operands_are_explained(name: str, index: int) -> None:
    op = OPS[name]
    inputs, attrs = draw(op, op.refuses[index], "float32")
    with pytest.raises(ShapeError, match=f"^{name}: ") as caught:
        infer(op, specs_of(inputs), attrs, inputs)
    assert "train.py:7" in str(caught.value)


@pytest.mark.parametrize(("name", "attr"), LIMITED)
def test_attributes_outside_their_limits_are_refused(name: str, attr: str) -> None:
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[0], "float32")
    kind = op.record.declared().kinds[attr]
    outside = {"Positive": 0, "NotNegative": -1}.get(kind, "none such")
    with pytest.raises(ShapeError, match=f"^{name}: {attr} must .*, got {outside!r}"):
        infer(op, specs_of(inputs), {**attrs, attr: outside}, inputs)


Specs = dict[str, list[Spec]]


def misfits(op: Op, rule: Sized, specs: Specs) -> list[tuple[str, Spec]]:
    """Return operands, each with a spec in its place that does not fit the line of the op's shape rule."""
    forms = {slot: form.split() for slot, form in rule.forms.items() if specs.get(slot)}
    words = [word for slot, form in forms.items() for word in set(form) for _ in specs[slot]]
    defined = {word for statement in rule.statements for word in statement.words}
    wrong = []
    for slot, dtype, like, *_ in rule.operands:
        if not specs.get(slot):
            continue
        (spec, *others), form = specs[slot], forms.get(slot, [])
        if (dtype or specs.get(like)) and (slot != like or others):
            other = VarType.INT64 if spec.dtype in FLOATS else VarType.FP64
            other = VarType.BOOL if dtype == "numbers" else other
            wrong.append((slot, spec._replace(dtype=other)))
        several = [i for i, word in enumerate(form) if word == "..." or word[0] == "*"]
        if form and all(form[i][1:] in defined or words.count(form[i]) > 1 for i in several):
            wrong.append((slot, spec._replace(shape=(*spec.shape, 1, 1))))
        for i, word in enumerate(form[: several[0] + 1] if several else form):
            fixed = (
                not word.rstrip("'").isidentifier()
                or word in {*op.attrs, *defined}
                or words.count(word) > 1
            )
            if i in several:
                fixed = (word[1:] in defined or words.count(word) > 1) and len(spec.shape) >= len(
                    form
                )
            if fixed and word != "1?":
                shape = (*spec.shape[:i], spec.shape[i] + 1, *spec.shape[i + 1 :])
                wrong.append((slot, spec._replace(shape=shape)))
    return wrong


@pytest.mark.parametrize("name", LINES)
def test_operands_that_do_not_fit_their_line_are_refused(name: str) -> None:
    op = OPS[name]
    assert isinstance(op.shape, Sized)
    for case in op.samples:
        inputs, attrs = draw(op, case, "float32")
        specs = specs_of(inputs)
        for slot, spec in misfits(op, op.shape, specs):
            with pytest.raises(ShapeError, match=f"^{name}: "):
                infer(op, {**specs, slot: [spec, *specs[slot][1:]]}, attrs, inputs)


def others(value: Any) -> list[Any]:
    """Return values of an attribute's type that are likely to be wrong."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, str):
        return ["none such"]
    if isinstance(value, list):
        numbers = value or [1]
        return [
            [],
            [*numbers, 1],
            numbers[1:],
            *([k] * len(numbers) for k in (0, -1, 99)),
            [-1.0, 2.0],
        ]
    return [] if value is None else [-1, 0, 1, 2, 3, 99, -99, value + 1]


def strange(op: Op, specs: Specs, attrs: dict[str, Any]) -> Iterator[tuple[Specs, dict[str, Any]]]:
    """Yield operands and attributes of which one is not that of a sample, or a size of all operands."""
    assert isinstance(op.shape, Sized)
    named = {name for statement in op.shape.statements for name in statement.expression.names}
    for name in sorted(named & attrs.keys()):
        yield from ((specs, {**attrs, name: other}) for other in (None, *others(attrs[name])))
    for slot in (slot.name for slot in op.input_slots if slot.name not in specs):
        yield {**specs, slot: [Spec((1,), VarType.FP32)]}, attrs
    for slot, of in specs.items():
        spec, shape = of[0], of[0].shape
        yield {k: v for k, v in specs.items() if k != slot}, attrs
        yield {**specs, slot: [*of, *of]}, attrs
        yield {**specs, slot: of[:1]}, attrs
        shapes = [(), shape[:-1], (*shape, 2), (2, *shape), *((1,) * n for n in range(1, 8))]
        for i, n in enumerate(shape):
            shapes += [(*shape[:i], k, *shape[i + 1 :]) for k in (-1, 0, 1, n - 1, n + 1, 3, 99)]
        for other in shapes:
            yield {**specs, slot: [spec._replace(shape=other), *of[1:]]}, attrs
            yield {**specs, slot: [spec._replace(shape=other) for spec in of]}, attrs
    for n in {n for of in specs.values() for spec in of for n in spec.shape}:
        for other in (0, 1, 2, n + 1, 99):
            yield (
                {
                    slot: [
                        s._replace(shape=tuple(other if k == n else k for k in s.shape)) for s in of
                    ]
                    for slot, of in specs.items()
                },
                attrs,
            )


@pytest.mark.parametrize("name", LINES)
def test_every_condition_of_a_line_refuses_something(name: str) -> None:
    """By the sentence that it tells: one that always holds, or comes too late, says nothing."""
    op = OPS[name]
    assert isinstance(op.shape, Sized)
    silent = {statement.problem for statement in op.shape.statements if not statement.words}
    for case in (*op.samples, *op.refuses):
        inputs, attrs = draw(op, case, "float32")
        for specs, settings in ((specs_of(inputs), attrs), *strange(op, specs_of(inputs), attrs)):
            if not silent:
                return
            try:
                infer(op, specs, settings)
            except (KeyError, TypeError):  # of None
                continue
            except ShapeError as error:
                silent = {problem for problem in silent if f"{name}: {problem}: " not in str(error)}
    assert not silent
