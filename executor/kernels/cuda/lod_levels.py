"""Offsets of sequences on a GPU, where the host does not see them: kernels assert that they fit."""

from __future__ import annotations

from collections.abc import Mapping

from ....graph.ops.lod_levels import OffsetsOfRows, OffsetsReshaped
from ....graph.ops.operands import Array
from ...codegen.cuda_launches import each, longs, read, refusal, written
from ...cuda.runtime import Step
from ...device.device import Device
from .copies import in_order
from .support import cuda


@cuda("lod_offsets")
def lod_offsets(dev: Device, a: OffsetsOfRows) -> list[Step]:
    """Offsets of another type, which end where the rows do.

    One that does not is brought between 0 and the number of rows, so that nothing else is read by it.
    """
    rows = len(a.rows)
    body = """
    const long long least = i ? x[i - 1] : 0, most = i ? rows : 0;
    if (at < least || at > most || (i == count - 1 && at != rows)) refuse(word, noted, assertion, at);
    out[i] = at < 0 ? 0 : at > rows ? rows : at;"""
    problem = (
        f"lod_reset: offsets must rise from 0 to {rows}, the number of X's rows, but one is {{}}"
    )
    return _each(dev, "lod_offsets", a.x.reshape(-1), a.out, body, {"rows": rows}, problem)


@cuda("lod_reshaped")
def lod_reshaped(dev: Device, a: OffsetsReshaped) -> list[Step]:
    """The same elements in rows of another width."""
    sizes = {"width": a.rows.shape[1], "new_dim": a.new_dim}
    body = """
    if (at * width % new_dim) refuse(word, noted, assertion, at * width);
    out[i] = at * width / new_dim;"""
    problem = (
        f"sequence_reshape: a sequence of X ends at element {{}}, which is not the end of a row of "
        f"{a.new_dim}. Choose new_dim so that it divides each sequence."
    )
    return _each(dev, "lod_reshaped", a.x, a.out, body, sizes, problem)


def _each(
    dev: Device,
    name: str,
    x: Array,
    out: Array,
    body: str,
    sizes: Mapping[str, int],
    problem: str,
) -> list[Step]:
    """Return the call that computes ``out`` from each offset, ``at``, of ``x``; it may refuse one."""
    x, steps = in_order(dev, x)
    arguments = [*written(out=out), *read(x=x), *refusal(dev, problem), *longs(**sizes)]
    text = f"""
    const long long at = x[i];{body}"""
    step = each(dev, name, text, arguments, x.size, ("assert.cuh",), index="long long")
    return [*steps, step]
