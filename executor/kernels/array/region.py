"""A region run by the kernels of its ops, one after the other: what a library compiles, in plain steps."""

from __future__ import annotations

from functools import partial

from ....graph.ops.operands import Array
from ....graph.ops.region import Region, infer_body
from ....strategies.types import to_numpy
from ...device.device import Device
from ...host.arena import spec_of
from ..registry import KERNELS, Step, bind, kernel


@kernel("xla_region", low=True)
def region(dev: Device, a: Region) -> list[Step]:
    return one_by_one(dev, a)


def one_by_one(dev: Device, a: Region, library: str = "") -> list[Step]:
    """Return the calls of a body's ops, by the kernels of a library where it has them.

    What the body makes is copied out at the end: a result may lie where an operand is still read.
    """
    specs = infer_body(a.body, [spec_of(array) for array in a.x])
    arrays: dict[int, Array] = dict(enumerate(a.x))
    for i, spec in specs.items():
        if i not in arrays:
            arrays[i] = dev.scratch(spec.shape, to_numpy(spec.dtype))
    steps: list[Step] = []
    for node in a.body:
        read, written = (
            {slot: [arrays.get(i) for i in numbers] for slot, numbers in node[side].items()}
            for side in ("inputs", "outputs")
        )
        back_end = library if (node["op"], library) in KERNELS else ""
        with dev.in_turn():
            steps += bind(node["op"], read, written, node["attrs"], dev, back_end)
    pairs = zip(a.results, a.out, strict=True)
    return [*steps, *(partial(dev.xp.copyto, to, arrays[i]) for i, to in pairs if to is not None)]
