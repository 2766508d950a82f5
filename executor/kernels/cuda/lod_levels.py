"""Offsets of sequences on a GPU, where the host does not see them: kernels assert that they fit."""

from __future__ import annotations

from collections.abc import Mapping

from ....graph.ops.lod_levels import Offsets, OffsetsOfRows, OffsetsReshaped
from ....graph.ops.operands import Array
from ...codegen.cuda_source import c_type
from ...cuda.kernel import CudaKernel
from ...cuda.runtime import Step
from ...device.device import Device
from .by_index import REFUSAL
from .copies import moved
from .support import cuda, enough_blocks, launch


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


@cuda("lod_from_lengths")
def lod_from_lengths(dev: Device, a: Offsets) -> list[Step]:
    """Running sums of lengths behind a zero, by one warp."""
    lengths, steps = a.x.reshape(-1), list[Step]()
    if not lengths.flags.c_contiguous:
        ordered = dev.scratch(lengths.shape, lengths.dtype)
        steps, lengths = moved(dev, ordered, lengths), ordered
    kind = c_type(lengths.dtype)
    body = f"""
  if (thread_index() == 0) out[0] = 0;
  warp_running_sums<{kind}, long long, false, false, 32>(lengths, out + 1, 1, count, 1);"""
    parameters = (("long long*", "out"), (f"const {kind}*", "lengths"), ("int", "count"))
    name, includes = f"lod_from_lengths_{kind}".replace(" ", "_"), ("reduce.cuh", "choice.cuh")
    kernel = CudaKernel(name, parameters, body, includes)
    return [*steps, launch(dev, kernel, 1, [a.out, lengths, lengths.size], 32)]


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
    steps: list[Step] = []
    if not x.flags.c_contiguous:
        ordered = dev.scratch(x.shape, x.dtype)
        steps, x = moved(dev, ordered, x), ordered
    kind = c_type(x.dtype)
    numbers = tuple(("long long", size) for size in ("count", *sizes))
    parameters = (("long long*", "out"), (f"const {kind}*", "x"), *REFUSAL, *numbers)
    loop = f"""
  for (long long i = thread_index(); i < count; i += thread_count()) {{
    const long long at = x[i];{body}
  }}"""
    kernel = CudaKernel(f"{name}_{kind}".replace(" ", "_"), parameters, loop, ("assert.cuh",))
    arguments = [out, x, *dev.assertion(problem), x.size, *sizes.values()]
    return [*steps, launch(dev, kernel, enough_blocks(dev, x.size), arguments)]
