"""Chains of tags on a GPU: a block for each sequence, and a product for pairs (``graph/ops/crf.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ....graph.ops import expr as e
from ....graph.ops.crf import CrfDecoding, LinearChainCrf, LinearChainCrfGrad
from ....graph.ops.formula import outside
from ....graph.ops.operands import Array
from ...codegen.cuda_launches import Argument, Maybe, call, ints, read, refusal, written
from ...codegen.cuda_source import c_type
from ...device.device import Device
from ..cuda.by_index import Sums
from ..cuda.elementwise import CUDA
from ..cuda.sequences import refusing
from ..cuda.support import of_same_float
from ..registry import Step, kernel
from .product import product
from .support import column_sums

_INCLUDES = ("reduce.cuh", "choice.cuh", "assert.cuh", "stretch.cuh", "crf.cuh")
_MOST_THREADS = 256


_on = partial(kernel, on=("cublaslt",), takes=of_same_float, needs=("cuda",), nonempty=True)


class _Chains:
    """Offsets of sequences, and the checks of them and of labels."""

    def __init__(self, dev: Device, op: str, a: LinearChainCrf | CrfDecoding) -> None:
        self._dev, self._op, self._padded = dev, op, a.length is not None
        self.tags = a.emission.shape[-1]
        self.rows = a.emission.size // self.tags
        self.count = a.emission.shape[0] if self._padded else a.emission_lod[-1].shape[0] - 1
        self._steps = a.emission.shape[1] if self._padded else 0
        self._ends: Array = a.emission_lod[-1] if a.length is None else a.length.reshape(-1)

    def launch(
        self,
        function: str,
        operands: Sequence[Argument],
        results: Sequence[Argument],
        label: Array | None,
        checks_labels: bool = True,
    ) -> Step:
        """Return the launch of a function, with a block for each sequence."""
        dev, op = self._dev, self._op
        if self._padded:
            problem = f"{op}: Length {{}} is outside the {self._steps} steps of Emission"
            refuse = refusal(dev, problem)
        else:
            refuse = refusing(dev, op, "Emission", self.rows)
        if checks_labels:
            problem = outside(op, self.tags, "label", "tags of Emission")
            refuse = [*refuse, *ints(of_label=dev.assertion(problem)[2])]
        first: Any = operands[0][1]
        kinds = [
            first.dtype,
            self._ends.dtype,
            np.dtype(np.int64) if label is None else label.dtype,
        ]
        arguments = [*operands, *read(ends=self._ends), *results, *refuse]
        arguments += ints(rows=self.rows, steps=self._steps, tags=self.tags)
        block = min(-(-self.tags // 32) * 32, _MOST_THREADS)
        texts = [*map(c_type, kinds), str(self._padded).lower()]
        return call(dev, function, texts, arguments, self.count, _INCLUDES, block)


@_on("linear_chain_crf")
def linear_chain_crf(dev: Device, a: LinearChainCrf) -> list[Step]:
    x, chains = a.emission, _Chains(dev, "linear_chain_crf", a)
    alpha, powers, between = (
        dev.array_or_scratch(array, like.shape, x.dtype)
        for array, like in ((a.alpha, x), (a.emission_exps, x), (a.transition_exps, a.transition))
    )
    power = e.Expr("exp", (e.argument("x"),))
    operands = read(x=x, transition=a.transition, between=between, label=a.label)
    results = written(alpha=alpha, powers=powers, loss=a.log_likelihood)
    return [
        *CUDA.bind(dev, [(power, between)], {"x": a.transition}),
        chains.launch("block_crf", operands, results, a.label),
    ]


@_on("linear_chain_crf_grad")
def linear_chain_crf_grad(dev: Device, a: LinearChainCrfGrad) -> list[Step]:
    """The likelihoods of tags and of pairs of tags, less 1 where the labels are."""
    x, chains = a.emission, _Chains(dev, "linear_chain_crf", a)
    tags, rows, between = chains.tags, chains.rows, a.transition_exps
    beta, earlier, later = (dev.scratch((rows, tags), x.dtype) for _ in range(3))
    first, final = (dev.scratch((chains.count, tags), x.dtype) for _ in range(2))
    less, pair = dev.scratch((rows, 1), x.dtype), dev.scratch((rows,), np.int32)
    d_x = dev.array_or_scratch(a.d_emission, x.shape, x.dtype)
    operands = read(
        alpha=a.alpha,
        powers=a.emission_exps,
        between=between,
        label=a.label,
        d_loss=a.d_log_likelihood,
    )
    results = written(
        d_x=d_x, beta=beta, earlier=earlier, later=later, first=first, final=final, less=less, pair=pair
    )  # fmt: skip
    steps = [chains.launch("block_crf_grad", operands, results, a.label)]
    if a.d_transition is None:
        return steps
    pairs, of_labels = (dev.scratch((tags, tags), x.dtype) for _ in range(2))
    sums = Sums(dev, pair, tags * tags)
    slope = e.argument("pairs") * e.argument("between") + e.argument("of_labels")
    arrays = {"pairs": pairs, "between": between[2:], "of_labels": of_labels}
    return [
        *steps,
        *column_sums(dev, first, a.d_transition[0]),
        *column_sums(dev, final, a.d_transition[1]),
        *product(dev, earlier.T, later, pairs),
        *sums.steps,
        *sums.into(of_labels.reshape(-1, 1), less),
        *CUDA.bind(dev, [(slope, a.d_transition[2:])], arrays),
    ]


@_on("crf_decoding")
def crf_decoding(dev: Device, a: CrfDecoding) -> list[Step]:
    x, chains = a.emission, _Chains(dev, "crf_decoding", a)
    like = np.empty(0, np.int64) if a.label is None else a.label
    operands = read(x=x, transition=a.transition, label=Maybe(a.label, like))
    results = written(
        score=dev.scratch(x.shape, x.dtype),
        source=dev.scratch(x.shape, np.int32),
        path=a.viterbi_path,
    )
    return [chains.launch("block_crf_decoding", operands, results, a.label, checks_labels=False)]
