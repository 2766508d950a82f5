"""The best chain of tags, sequence by sequence, in a compiled loop: see ``graph/ops/crf.py`` for the legend.

The scores of a row's tags are computed side by side, which makes them vectors.
"""

from __future__ import annotations

from ....graph.ops.crf import CrfDecoding
from ....strategies.types import VarType
from ...codegen.text_loops import bind_or, named
from ...device.device import Device
from ..registry import Step, by_arrays, kernel, of_types
from .spans import SPANS, readable, spans

# Of largest elements nan is the first, as in NumPy.
_BEST = """
    if not are_spans(ends, S, apart, rows):
        wrong[0] = 1
        return
    for r in range(rows if apart else 0):
        path[r] = 0
    for s in range(S):
        begin, length = begin_of(ends, s, apart), length_of(ends, s, apart)
        for k in range(length):
            o = (begin + k) * C
            if k == 0:
                for j in range(C):
                    store(score, o + j, load(moves, j))
            else:
                for j in range(C):
                    way = score[o - C] + moves[2 * C + j]
                    store(score, o + j, way)
                for i in range(1, C):
                    before = score[o - C + i]
                    for j in range(C):
                        way, most = before + load(moves, (i + 2) * C + j), load(score, o + j)
                        store(score, o + j, select((way > most) | (way != way), way, most))
            for j in range(C):
                store(score, o + j, load(score, o + j) + load(x, o + j))
        tag = np.int64(0)
        for back in range(length):
            r = begin + length - 1 - back
            for_last = back == 0
            best, most = np.int64(0), np.float32(0)
            for i in range(C):
                way = score[r * C + i] + (moves[C + i] if for_last else moves[(i + 2) * C + tag])
                if i == 0 or way > most or (way != way and most == most):
                    best, most = np.int64(i), way
            tag = best
            path[r] = np.int64(tag == labels[r]) if judged else tag
"""


@kernel("crf_decoding", on=("llvm",), takes=of_types(VarType.FP32, VarType.INT32, VarType.INT64))
def crf_decoding(dev: Device, a: CrfDecoding) -> list[Step]:
    """The chain with the largest score, or, with Label, where it is the same (Viterbi, 1967)."""
    tags = a.emission.shape[-1]
    ends, apart, count = spans(a.emission_lod, a.length, a.emission)
    names = "x moves ends labels path"
    operands = (a.emission, a.transition, ends, a.label, a.viterbi_path)
    if not readable(*operands):
        return by_arrays("crf_decoding", dev, a)
    (otherwise,) = by_arrays("crf_decoding", dev, a)
    arrays = {**named(names, operands), "score": dev.scratch(a.emission.shape, a.emission.dtype)}
    judged = a.label is not None
    sizes = {"S": count, "apart": apart, "rows": a.emission.size // tags, "C": tags}
    return bind_or(dev, _BEST, arrays, otherwise, SPANS, judged=int(judged), **sizes)
