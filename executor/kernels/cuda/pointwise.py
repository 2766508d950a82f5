"""Functions of elements with numbers that are on the device, written in C."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...device.device import Device
from .launches import simple
from .rows import accumulator, vector
from .support import enough_blocks, launch


def pointwise(
    dev: Device,
    reads: Mapping[str, Any],
    makes: Mapping[str, tuple[Any, str]],
    *,
    numbers: Mapping[str, Any] | None = None,
    constants: Mapping[str, float] | None = None,
) -> list[Step]:
    """Return the launch that fills arrays (all that are ``makes``) with what expressions make of ``reads``.

    All are dense and of one size and type. An expression has the names of elements, of ``numbers`` (device
    arrays of one element), of ``constants``, and of what was made before it. An array that is None is not
    written, but what it would hold can be used.
    """
    targets = {name: array for name, (array, _) in makes.items()}
    arrays = [*reads.values(), *(array for array in targets.values() if array is not None)]
    first = arrays[0]
    numbers, constants = numbers or {}, constants or {}
    size, t = vector(dev, first.size, *arrays), c_type(first.dtype)
    kind = c_type(accumulator(first.dtype))
    parameters = (
        *(f"const {t}* p_{n}" for n in reads),
        *(f"{t}* p_{n}" for n in makes),
        *(f"const {c_type(a.dtype)}* p_{n}" for n, a in numbers.items()),
        *(f"{kind} {n}" for n in constants),
        "long long size",
    )
    arguments = (*reads.values(), *targets.values(), *numbers.values(), *constants.values())
    expressions = {name: text for name, (_, text) in makes.items()}
    kernel = simple("pointwise", parameters, _body(reads, expressions, numbers, size, t, kind), ())
    return [launch(dev, kernel, enough_blocks(dev, first.size // size), (*arguments, first.size))]


def _body(
    reads: Iterable[str],
    makes: Mapping[str, str],
    numbers: Iterable[str],
    size: int,
    t: str,
    kind: str,
) -> str:
    computes = (
        f"const {kind} {n} = {e}; v_{n}.at[j] = element<{t}>({n});" for n, e in makes.items()
    )
    return _BODY.format(
        size=size,
        numbers=" ".join(f"const {kind} {n} = wide(*p_{n});" for n in numbers),
        loads=" ".join(
            f"const Vec<{t}, {size}> v_{n} = load_vec<{size}>(p_{n} + i);" for n in reads
        ),
        made=" ".join(f"Vec<{t}, {size}> v_{n};" for n in makes),
        elements=" ".join(f"const {kind} {n} = wide(v_{n}.at[j]);" for n in reads),
        computes=" ".join(computes),
        stores=" ".join(f"if (p_{n}) store_vec<{size}>(p_{n} + i, v_{n});" for n in makes),
    )


_BODY = """\
{numbers}
for (long long i = thread_index() * {size}; i < size; i += thread_count() * {size}) {{
  {loads}
  {made}
  #pragma unroll
  for (int j = 0; j < {size}; j++) {{
    {elements}
    {computes}
  }}
  {stores}
}}"""
