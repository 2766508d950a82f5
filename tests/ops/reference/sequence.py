"""Ops on sequences, one sequence after the other, and offsets."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from .registry import reference

Slots = dict[str, Any]


def parts(rows: Any, offsets: Any) -> list[Any]:
    """Return the rows of each sequence."""
    return [rows[begin:end] for begin, end in pairwise(offsets)]


POOLS: dict[str, Callable[[Any], Any]] = {
    "SUM": lambda x: x.sum(0),
    "AVERAGE": lambda x: x.mean(0),
    "SQRT": lambda x: x.sum(0) / np.sqrt(len(x)),
    "MAX": lambda x: x.max(0),
    "FIRST": lambda x: x[0],
    "LAST": lambda x: x[-1],
}


@reference("sequence_pool")
def sequence_pool(ins: Slots, attrs: Slots) -> Slots:
    offsets, kind = ins["X@LOD"][-1], attrs["pooltype"]
    x, pad = parts(ins["X"], offsets), np.full(ins["X"].shape[1:], attrs["pad_value"])
    out = [POOLS[kind](rows) if len(rows) else pad for rows in x]
    index = [
        rows.argmax(0) + begin if len(rows) and kind == "MAX" else np.full(pad.shape, -1)
        for rows, begin in zip(x, offsets, strict=False)
    ]
    return {"Out": np.stack(out), "MaxIndex": np.stack(index).astype(np.int32)}


@reference("sequence_softmax")
def sequence_softmax(ins: Slots, attrs: Slots) -> Slots:
    x = parts(ins["X"], ins["X@LOD"][-1])
    powers = [np.exp(rows - rows.max(initial=-np.inf)) for rows in x]
    return {"Out": np.concatenate([rows / rows.sum() for rows in powers])}


@reference("sequence_expand")
def sequence_expand(ins: Slots, attrs: Slots) -> Slots:
    x = ins["X"]
    items = parts(x, ins["X@LOD"][-1]) if "X@LOD" in ins else list(x[:, None])
    counts = np.diff(ins["Y@LOD"][attrs["ref_level"]])
    copies = [item for item, count in zip(items, counts, strict=True) for _ in range(count)]
    return {"Out": np.concatenate(copies)}


@reference("sequence_expand_as")
def sequence_expand_as(ins: Slots, attrs: Slots) -> Slots:
    return {"Out": np.repeat(ins["X"], np.diff(ins["Y@LOD"][-1]), axis=0)}


@reference("sequence_reverse")
def sequence_reverse(ins: Slots, attrs: Slots) -> Slots:
    return {"Y": np.concatenate([rows[::-1] for rows in parts(ins["X"], ins["X@LOD"][-1])])}


@reference("sequence_pad")
def sequence_pad(ins: Slots, attrs: Slots) -> Slots:
    x = parts(ins["X"], ins["X@LOD"][-1])
    lengths = np.array([len(rows) for rows in x])
    length = attrs["padded_length"] if attrs["padded_length"] > 0 else lengths.max()
    out = np.empty((len(x), length, *ins["X"].shape[1:]))
    out[...] = ins["PadValue"] if ins["PadValue"].size > 1 else ins["PadValue"].item()
    for row, rows in zip(out, x, strict=True):
        row[: len(rows)] = rows
    return {"Out": out, "Length": lengths}


@reference("sequence_unpad")
def sequence_unpad(ins: Slots, attrs: Slots) -> Slots:
    x = ins["X"] if ins["X"].ndim > 2 else ins["X"][..., None]
    return {"Out": np.concatenate([row[:n] for row, n in zip(x, ins["Length"], strict=True)])}


@reference("sequence_mask")
def sequence_mask(ins: Slots, attrs: Slots) -> Slots:
    length = attrs["maxlen"] if attrs["maxlen"] > 0 else ins["X"].max()
    return {"Y": np.arange(length) < ins["X"][..., None]}


@reference("sequence_mask_at")
def sequence_mask_at(ins: Slots, attrs: Slots) -> Slots:
    return {"Y": np.arange(ins["MaxLenTensor"][0]) < ins["X"][..., None]}


@reference("lod_reset")
def lod_reset(ins: Slots, attrs: Slots) -> Slots:
    return {"Out": ins["X"]}


@reference("sequence_conv")
def sequence_conv(ins: Slots, attrs: Slots) -> Slots:
    start, size = attrs["contextStart"], attrs["contextLength"]
    padding, up = ins.get("PaddingData"), max(0, -start)
    if not attrs["paddingTrainable"]:
        padding = np.zeros((up + max(0, start + size - 1), ins["X"].shape[1]))
    rows = []
    for x in parts(ins["X"], ins["X@LOD"][-1]):
        around = np.concatenate([padding[:up], x, padding[up:]])
        rows += [around[up + t + start :][:size].reshape(-1) for t in range(len(x))]
    return {"Out": np.stack(rows) @ ins["Filter"]}


@reference("row_conv")
def row_conv(ins: Slots, attrs: Slots) -> Slots:
    weights = ins["Filter"]
    padded = "X@LOD" not in ins
    sequences = list(ins["X"]) if padded else parts(ins["X"], ins["X@LOD"][-1])
    out = [
        np.array(
            [
                sum(x[t + k] * w for k, w in enumerate(weights) if t + k < len(x))
                for t in range(len(x))
            ]
        ).reshape(x.shape)
        for x in sequences
    ]
    return {"Out": np.stack(out) if padded else np.concatenate(out)}


@reference("sequence_enumerate")
def sequence_enumerate(ins: Slots, attrs: Slots) -> Slots:
    size, pad = attrs["win_size"], attrs["pad_value"]
    rows = []
    for x in parts(ins["X"][:, 0].tolist(), ins["X@LOD"][-1]):
        rows += [(x[t : t + size] + [pad] * size)[:size] for t in range(len(x))]
    return {"Out": np.array(rows)}


@reference("im2sequence")
def im2sequence(ins: Slots, attrs: Slots) -> Slots:
    up, left, down, right = attrs["paddings"]
    x = np.pad(ins["X"], [(0, 0), (0, 0), (up, down), (left, right)])
    (height, width), (down, right) = attrs["kernels"], attrs["strides"]
    rows = [
        image[:, top : top + height, side : side + width].reshape(-1)
        for image in x
        for top in range(0, x.shape[2] - height + 1, down)
        for side in range(0, x.shape[3] - width + 1, right)
    ]
    return {"Out": np.stack(rows)}


@reference("sequence_topk_avg_pooling")
def sequence_topk_avg_pooling(ins: Slots, attrs: Slots) -> Slots:
    topks, channels = attrs["topks"], attrs["channel_num"]
    rows, places = [], []
    lods = (np.diff(ins[f"{slot}@LOD"][-1]) for slot in ("ROW", "COLUMN"))
    blocks = parts(ins["X"], ins["X@LOD"][-1])
    for block, height, width in zip(blocks, *lods, strict=True):
        values = block.reshape(channels, height, width)
        for row in range(height):
            order = [sorted(range(width), key=lambda j, x=x: -x[j]) for x in values[:, row]]
            sums = [[x[best[:k]].sum() / k for k in topks]
                    for x, best in zip(values[:, row], order, strict=True)]  # fmt: skip
            rows.append(np.ravel(sums))
            places += [(best + [-1] * topks[-1])[: topks[-1]] for best in order]
    return {"Out": np.stack(rows), "pos": np.ravel(places).astype(np.int32)}


@reference("sequence_slice")
def sequence_slice(ins: Slots, attrs: Slots) -> Slots:
    cuts = zip(parts(ins["X"], ins["X@LOD"][-1]), ins["Offset"], ins["Length"], strict=True)
    return {"Out": np.concatenate([x[first : first + n] for x, first, n in cuts])}


@reference("sequence_concat")
def sequence_concat(ins: Slots, attrs: Slots) -> Slots:
    each = (parts(x, ends) for x, ends in zip(ins["X"], ins["X@LOD"], strict=True))
    return {"Out": np.concatenate([x for together in zip(*each, strict=True) for x in together])}


@reference("sequence_reshape")
def sequence_reshape(ins: Slots, attrs: Slots) -> Slots:
    return {"Out": ins["X"].reshape(-1, attrs["new_dim"])}


@reference("sequence_scatter")
def sequence_scatter(ins: Slots, attrs: Slots) -> Slots:
    out, ends = ins["X"].copy(), ins["Ids@LOD"][-1]
    for row, ids, added in zip(
        out, parts(ins["Ids"], ends), parts(ins["Updates"], ends), strict=False
    ):
        for column, number in zip(ids.reshape(-1), added.reshape(-1), strict=True):
            row[column] += number
    return {"Out": out}


@reference("sequence_erase")
def sequence_erase(ins: Slots, attrs: Slots) -> Slots:
    rows = [row for row in ins["X"] if row.item() not in attrs["tokens"]]
    return {"Out": np.array(rows).reshape(-1, *ins["X"].shape[1:])}


@reference("fused_embedding_seq_pool")
def fused_embedding_seq_pool(ins: Slots, attrs: Slots) -> Slots:
    w = ins["W"].copy()
    if attrs["padding_idx"] >= 0:
        w[attrs["padding_idx"]] = 0
    pooled = [w[ids[:, 0]].sum(0) for ids in parts(ins["Ids"], ins["Ids@LOD"][-1])]
    return {"Out": np.stack(pooled)}


def labels_of(ins: Slots, slot: str, length: str) -> list[list[int]]:
    """Return each sequence's labels, padded or not."""
    if length in ins:
        return [row[:n].tolist() for row, n in zip(ins[slot], ins[length], strict=True)]
    return [part.reshape(-1).tolist() for part in parts(ins[slot], ins[f"{slot}@LOD"][-1])]


@reference("edit_distance")
def edit_distance(ins: Slots, attrs: Slots) -> Slots:
    @cache
    def distance(hyp: tuple[int, ...], ref: tuple[int, ...]) -> int:
        if not hyp or not ref:
            return len(hyp) + len(ref)
        changed = distance(hyp[1:], ref[1:]) + (hyp[0] != ref[0])
        return min(changed, distance(hyp[1:], ref) + 1, distance(hyp, ref[1:]) + 1)

    hyps, refs = labels_of(ins, "Hyps", "HypsLength"), labels_of(ins, "Refs", "RefsLength")
    out = [
        [distance(tuple(hyp), tuple(ref)) / (len(ref) if attrs["normalized"] else 1)]
        for hyp, ref in zip(hyps, refs, strict=True)
    ]
    return {"Out": np.array(out, np.float32), "SequenceNum": np.array([len(out)])}


def shortened(labels: list[int], attrs: Slots) -> list[int]:
    """Return a path without repetitions, if they are merged, and blanks."""
    merged = [k for k, _ in groupby(labels)] if attrs["merge_repeated"] else labels
    return [label for label in merged if label != attrs["blank"]]


@reference("ctc_align")
def ctc_align(ins: Slots, attrs: Slots) -> Slots:
    short = [shortened(labels, attrs) for labels in labels_of(ins, "Input", "InputLength")]
    if "InputLength" not in ins:
        return {
            "Output": np.array([label for labels in short for label in labels] or [-1])[:, None]
        }
    out = np.full(ins["Input"].shape, attrs["padding_value"])
    for row, labels in zip(out, short, strict=True):
        row[: len(labels)] = labels
    return {"Output": out, "OutputLength": np.array([[len(labels)] for labels in short])}


STARTS = {"plain": "", "IOB": "B", "IOE": "", "IOBES": "BS"}
POSITIONS = {"plain": "P", "IOB": "BI", "IOE": "IE", "IOBES": "BIES"}


def chunks(tags: list[int], attrs: Slots) -> set[tuple[int, int, int]]:
    """Return (type, begin, end) of each chunk: labels of one type, cut before a start and behind an end."""
    names = POSITIONS[attrs["chunk_scheme"]]
    spans, last = [], None
    for i, tag in enumerate(tags):
        kind, position = tag // len(names), names[tag % len(names)]
        if kind == attrs["num_chunk_types"]:
            last = None
            continue
        begins = position in STARTS[attrs["chunk_scheme"]]
        if last is None or last[0] != kind or begins or last[1] in "ES":
            spans.append([kind, i, i])
        spans[-1][2], last = i, (kind, position)
    return {tuple(chunk) for chunk in spans if chunk[0] not in attrs["excluded_chunk_types"]}


@reference("chunk_eval")
def chunk_eval(ins: Slots, attrs: Slots) -> Slots:
    said, expected, right = 0, 0, 0
    each = (labels_of(ins, slot, "SeqLength") for slot in ("Inference", "Label"))
    for first, second in zip(*each, strict=True):
        guesses, real = chunks(first, attrs), chunks(second, attrs)
        said, expected, right = (
            said + len(guesses),
            expected + len(real),
            right + len(guesses & real),
        )
    precision, recall = right / max(said, 1), right / max(expected, 1)
    both = 2 * precision * recall / (precision + recall) if right else 0
    ratios = {"Precision": precision, "Recall": recall, "F1-Score": both}
    counts = {"NumInferChunks": said, "NumLabelChunks": expected, "NumCorrectChunks": right}
    return {slot: np.array([value]) for slot, value in {**ratios, **counts}.items()}


@reference("lod_joined")
def lod_joined(ins: Slots, attrs: Slots) -> Slots:
    lengths = np.concatenate([np.diff(x) for x in ins["X"]])
    return {"Out": np.concatenate([[0], np.cumsum(lengths)])}


@reference("lod_reshaped")
def lod_reshaped(ins: Slots, attrs: Slots) -> Slots:
    return {"Out": ins["X"] * ins["Rows"].shape[1] // attrs["new_dim"]}


@reference("lod_erased")
def lod_erased(ins: Slots, attrs: Slots) -> Slots:
    left = [label not in attrs["tokens"] for label in ins["Rows"].reshape(-1)]
    return {"Out": np.array([sum(left[:end]) for end in ins["X"]])}


@reference("lod_aligned")
def lod_aligned(ins: Slots, attrs: Slots) -> Slots:
    short = [shortened(part.reshape(-1).tolist(), attrs) for part in parts(ins["Rows"], ins["X"])]
    return {"Out": np.concatenate([[0], np.cumsum([len(labels) for labels in short])])}


@reference("lod_alike")
def lod_alike(ins: Slots, attrs: Slots) -> Slots:
    return {"Out": ins["Y"]}


@reference("lod_of_pairs")
def lod_of_pairs(ins: Slots, attrs: Slots) -> Slots:
    sizes = [
        n * m * attrs["dim_t"] for n, m in zip(np.diff(ins["X"]), np.diff(ins["Y"]), strict=True)
    ]
    return {"Out": np.concatenate([[0], np.cumsum(sizes)])}


@reference("match_matrix_tensor")
def match_matrix_tensor(ins: Slots, attrs: Slots) -> Slots:
    pairs = zip(*(parts(ins[slot], ins[f"{slot}@LOD"][-1]) for slot in "XY"), strict=True)
    out = [np.einsum("id,dte,je->tij", x, ins["W"], y).reshape(-1, 1) for x, y in pairs]
    return {
        "Out": np.concatenate(out),
        "Tmp": np.einsum("id,dte->ite", ins["X"], ins["W"]).reshape(-1, 1),
    }


def images(ins: Slots, attrs: Slots) -> Any:
    """Yield each image, [channels, height, width]."""
    lods = (np.diff(ins[f"{slot}@LOD"][-1]) for slot in ("ROW", "COLUMN"))
    for block, height, width in zip(parts(ins["X"], ins["X@LOD"][-1]), *lods, strict=True):
        yield block.reshape(attrs["InputChannel"], height, width)


@reference("var_conv_2d")
def var_conv_2d(ins: Slots, attrs: Slots) -> Slots:
    kernel = attrs["KernelH"], attrs["KernelW"]
    columns = []
    for image in images(ins, attrs):
        padded = np.pad(image, [(0, 0), *((k // 2, k) for k in kernel)])
        corners = [
            (y, x)
            for y in range(0, image.shape[1], attrs["StrideH"])
            for x in range(0, image.shape[2], attrs["StrideW"])
        ]
        windows = [padded[:, y : y + kernel[0], x : x + kernel[1]].ravel() for y, x in corners]
        columns.append(np.reshape(windows, (len(windows), ins["W"].shape[1])).T)
    return {
        "Out": np.concatenate([np.ravel(ins["W"] @ col) for col in columns]).reshape(-1, 1),
        "Col": np.concatenate([np.ravel(col) for col in columns]).reshape(-1, 1),
    }


@reference("lod_of_images")
def lod_of_images(ins: Slots, attrs: Slots) -> Slots:
    sizes = zip(np.diff(ins["Y"]), np.diff(ins["Z"]), strict=True)
    steps = attrs["StrideH"], attrs["StrideW"]
    counts = [len(range(0, h, steps[0])) * len(range(0, w, steps[1])) for h, w in sizes]
    return {"Out": np.cumsum([0, *counts]) * attrs["OutputChannel"]}


@reference("lod_of_patches")
def lod_of_patches(ins: Slots, attrs: Slots) -> Slots:
    rows = len(im2sequence(ins, attrs)["Out"])
    count = len(ins["X"])
    return {"Out": np.arange(count + 1) * (rows // count)}


@reference("lod_offsets")
def lod_offsets(ins: Slots, attrs: Slots) -> Slots:
    return {"Out": ins["X"].reshape(-1)}


@reference("lod_from_lengths")
def lod_from_lengths(ins: Slots, attrs: Slots) -> Slots:
    return {"Out": np.array([ins["X"].reshape(-1)[:n].sum() for n in range(ins["X"].size + 1)])}


@reference("lod_of_copies")
def lod_of_copies(ins: Slots, attrs: Slots) -> Slots:
    lengths = np.repeat(np.diff(ins["X"]), np.diff(ins["Y"]))
    return {"Out": np.concatenate([[0], np.cumsum(lengths)])}


@reference("lod_together")
def lod_together(ins: Slots, attrs: Slots) -> Slots:
    return {"Out": np.sum(ins["X"], axis=0)}
