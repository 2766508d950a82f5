"""Primitives: described by the shapes and strides of arrays, compiled once, then bound to memory.

A compiled primitive has no memory of its own, so all plans and threads of a process share it; it lives as long
as a plan that calls it, or a while longer. Where it wants an operand in another order of elements than the
array's, a copy goes through scratch memory on each step.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial, wraps
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import numpy as np

from ....graph.ops.operands import Array
from ....strategies.bounded_dict import BoundedDict
from ....strategies.types import BFLOAT16
from ...device.device import Device
from ...host.arena import ALIGNMENT
from ...host.writes import Writes, address
from ..registry import Step
from .library import Argument, Handle, Library, library

_ROLES = {  # of memory, for a primitive (DNNL_ARG_*)
    "src": 1, "dst": 17, "weights": 33, "bias": 41, "mean": 49, "variance": 50, "scale": 51, "shift": 52,
    "workspace": 64, "scratchpad": 80, "d_src": 129, "d_dst": 145, "d_weights": 161, "d_scale": 255,
    "d_shift": 256,
}  # fmt: skip

# Kinds of propagation (dnnl_prop_kind_t)
TRAINING, INFERENCE, BACKWARD = 64, 96, 128

_ANY, _ARGUMENT, _IMPLEMENTATION = 1, 255, 8  # format tag, queries
_DTYPES = {"bfloat16": 2, "float32": 3}  # dnnl_data_type_t
ELTWISE = {
    "linear": 0x26, "relu": 0x20, "tanh": 0x21, "sigmoid": 0x29, "gelu": 0x31, "gelu_tanh": 0x2B,
}  # fmt: skip  # dnnl_alg_kind_t
CACHED = 1024  # descriptors of one kind that are kept, and primitives that need no plan to live
PRIMITIVE_BYTES = 48 << 10  # as measured: a pool takes 24 KiB, a convolution 48, a product 121
_UNKNOWN = -(1 << 63)  # a size or stride that is told with the memory (DNNL_RUNTIME_DIM_VAL)

PostOp = tuple[str, float, float]  # element-wise function, alpha, beta
SUM: PostOp = ("sum", 1.0, 0.0)  # adds what the result's memory holds already


def loaded() -> Library:
    """Return the library, where it is known to be here."""
    dnnl = library()
    assert dnnl is not None, "a kernel of oneDNN was chosen where it is not installed"
    return dnnl


@dataclass(frozen=True)
class Layout:
    """Shape and strides (in elements) of memory; no strides: in the order that the library likes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...] = ()
    dtype: str = "float32"

    @property
    def handle(self) -> Handle:
        """The memory descriptor."""
        return _descriptor(self)

    @property
    def of_any_size(self) -> Layout:
        """The layout of as many dimensions in the same order, whose sizes are told when it is used."""
        rank = len(self.shape)
        near = rank - 1 - self.strides[::-1].index(1) if 1 in self.strides else rank - 1
        return _of_any_size(rank, near)

    @property
    def of_any_length(self) -> Layout:
        """The layout of a row that is as long as is told when it is used."""
        rank = len(self.shape)
        return replace(_of_any_size(rank, rank - 1), shape=(*(1,) * (rank - 1), _UNKNOWN))

    def __str__(self) -> str:
        return "x".join("?" if n == _UNKNOWN else str(n) for n in self.shape)


@lru_cache
def _of_any_size(rank: int, near: int) -> Layout:
    """Return a layout of which only the dimension is known whose elements lie side by side."""
    strides = tuple(1 if i == near else _UNKNOWN for i in range(rank))
    return Layout((_UNKNOWN,) * rank, strides)


@lru_cache(4 * CACHED)
def _descriptor(layout: Layout) -> Handle:
    make = f"memory_desc_create_with_{'strides' if layout.strides else 'tag'}"
    order = numbers(layout.strides) if layout.strides else _ANY
    sizes, dtype = numbers(layout.shape), _DTYPES[layout.dtype]
    arguments = (len(layout.shape), sizes, dtype, order)
    return loaded().owned("memory_desc", make, *arguments, what=f"memory {layout.shape}")


def numbers(values: Sequence[int]) -> Any:
    """Return dimensions as the library reads them."""
    return (ctypes.c_int64 * len(values))(*values)


def layout_of(array: Array) -> Layout:
    """Return the layout of an array; what strides dimensions of one element have makes no difference."""
    if array.flags.c_contiguous:
        layout = in_order(array.shape)
    elif channels_last(array):
        layout = last(array.shape)
    else:
        layout = Layout(array.shape, tuple(s // array.itemsize for s in array.strides))
    return replace(layout, dtype="bfloat16") if array.dtype == BFLOAT16 else layout


def dense(array: Array, dtype: str) -> Layout:
    """Return the layout of a copy without gaps, with its elements in the array's order in memory."""
    outer_first = sorted(range(array.ndim), key=lambda i: -array.strides[i])
    strides, step = [0] * array.ndim, 1
    for i in reversed(outer_first):
        strides[i], step = step, step * array.shape[i]
    return Layout(array.shape, tuple(strides), dtype)


@lru_cache(CACHED)
def in_order(shape: tuple[int, ...]) -> Layout:
    """Return the layout of a contiguous array."""
    strides = [1]
    for n in shape[:0:-1]:
        strides.append(strides[-1] * n)
    return Layout(shape, tuple(reversed(strides)))


@lru_cache(CACHED)
def last(shape: tuple[int, ...]) -> Layout:
    """Return the layout of images whose channels (dimension 1) lie side by side."""
    n, c, *sizes = shape
    outer, *inner, channel = in_order((n, *sizes, c)).strides
    return Layout(shape, (outer, channel, *inner))


def channels_last(array: Array) -> bool:
    """Tell whether the channels of images lie side by side."""
    if array.ndim < 3:
        return False
    return bool(array.transpose(0, *range(2, array.ndim), 1).flags.c_contiguous)


@lru_cache(CACHED)
def attributes(post_ops: tuple[PostOp, ...] = ()) -> Handle:
    """Return attributes: scratch memory comes from outside; what follows, element by element."""
    dnnl = loaded()
    handle = dnnl.owned("primitive_attr", "primitive_attr_create")
    dnnl.set("primitive_attr_set_scratchpad_mode", handle, 1)
    if post_ops:
        chain = dnnl.owned("post_ops", "post_ops_create")
        for name, alpha, beta in post_ops:
            if name == SUM[0]:
                none, same = ctypes.c_int32(0), ctypes.c_int(0)
                dnnl.set("post_ops_append_sum", chain, ctypes.c_float(alpha), none, same)
                continue
            slope, offset = ctypes.c_float(alpha), ctypes.c_float(beta)
            dnnl.set("post_ops_append_eltwise", chain, ELTWISE[name], slope, offset)
        dnnl.set("primitive_attr_set_post_ops", handle, chain)
    return handle


class Format:
    """How a primitive wants an operand; its descriptor is part of the primitive's, ``whole``."""

    def __init__(self, descriptor: Handle, whole: Handle) -> None:
        self.descriptor, self._whole = descriptor, whole
        known = descriptor.value is not None
        self.nbytes = loaded().calls.dnnl_memory_desc_get_size(descriptor) if known else 0
        self._same: BoundedDict[Layout, bool] = BoundedDict(CACHED)

    def fits(self, layout: Layout) -> bool:
        """Tell whether memory of this layout can be used as it is."""
        same = self._same.get(layout)
        if same is None:
            equal = loaded().calls.dnnl_memory_desc_equal(self.descriptor, layout.handle)
            same = self._same[layout] = bool(equal)
        return same

    def equals(self, other: Format) -> bool:
        """Tell whether memory of one format has the other, too."""
        return bool(loaded().calls.dnnl_memory_desc_equal(self.descriptor, other.descriptor))

    def block(self, dev: Device) -> Any:
        """Return scratch memory of this format."""
        return dev.scratch((self.nbytes,), np.uint8)


@dataclass(frozen=True)
class Memory:
    """Memory whose format is the library's own."""

    block: Any


class Primitive:
    """A compiled primitive.

    ``arguments`` are those of ``dnnl_<kind>_primitive_desc_create``: layouts stand for their descriptors,
    tuples for dimensions. ``hint``: the primitive of which this one computes the gradient.
    """

    def __init__(
        self,
        kind: str,
        *arguments: Any,
        hint: Primitive | None = None,
        post_ops: tuple[PostOp, ...] = (),
    ) -> None:
        dnnl = loaded()
        description = f"{kind} of {', '.join(str(a) for a in arguments if isinstance(a, Layout))}"
        parameters = [*map(_parameter, arguments), *([] if hint is None else [hint.descriptor])]
        if kind != "reorder":
            parameters.insert(0, dnnl.engine)
        make = f"{kind}_primitive_desc_create"
        parameters.append(attributes(post_ops))
        self.descriptor: Handle = dnnl.owned("primitive_desc", make, *parameters, what=description)
        self.compiled = dnnl.owned(
            "primitive", "primitive_create", self.descriptor, what=description
        )
        self._formats: dict[str, Format] = {}
        self._counted = False  # among the bytes of a plan

    def format(self, role: str) -> Format:
        """Return the format of the memory that plays a role."""
        format_ = self._formats.get(role)
        if format_ is None:
            query = loaded().calls.dnnl_primitive_desc_query_md
            format_ = Format(
                Handle(query(self.descriptor, _ARGUMENT, _ROLES[role])), self.descriptor
            )
            self._formats[role] = format_
        return format_

    @cached_property
    def implementation(self) -> str:
        """The library's name of the code that was chosen."""
        name = ctypes.c_char_p()
        query = loaded().calls.dnnl_primitive_desc_query
        query(self.descriptor, _IMPLEMENTATION, 0, ctypes.byref(name))
        return (name.value or b"").decode()

    def bind(self, dev: Device, reads: Mapping[str, Any], writes: Mapping[str, Any]) -> list[Step]:
        """Return the calls that compute it on these arrays (by role), with copies where formats differ.

        None stands for memory of this primitive alone, in whatever format.
        """
        before: list[Step] = []
        after: list[Step] = []
        used: dict[str, tuple[Handle, Any]] = {}
        for role, array in (*reads.items(), *writes.items()):
            wanted = self.format(role)
            if isinstance(array, Memory):
                used[role] = (wanted.descriptor, array.block)
                continue
            layout = None if array is None else layout_of(array)
            if layout is not None and wanted.fits(layout):
                used[role] = (wanted.descriptor, array)
                continue
            if layout is not None and role in reads and address(array) in dev.constant:
                used[role] = _packed(dev, wanted, layout, array, before)
                continue
            block = wanted.block(dev)
            used[role] = (wanted.descriptor, block)
            if layout is not None and role in reads:
                before.append(_copy(dev, (layout.handle, array), used[role]))
            elif layout is not None:
                after.append(_copy(dev, used[role], (layout.handle, array)))
        return [*before, self.call(dev, used), *after]

    def memory(self, dev: Device, role: str) -> Memory:
        """Return scratch memory in the format of a role, to bind another primitive to as well."""
        return Memory(self.format(role).block(dev))

    def pack(self, dev: Device, role: str, array: Array) -> tuple[Memory, Step]:
        """Return scratch memory in the format of a role, and the call that copies an array into it."""
        wanted, memory = self.format(role), self.memory(dev, role)
        copy = _copy(dev, (layout_of(array).handle, array), (wanted.descriptor, memory.block))
        return memory, copy

    def call(self, dev: Device, used: dict[str, tuple[Handle, Any]]) -> Step:
        """Return the call on memory in the right formats: descriptor and array for each role."""
        space = self.format("scratchpad")
        if space.nbytes:
            used = {**used, "scratchpad": (space.descriptor, space.block(dev))}
        objects = _objects(dev)
        handles = {role: objects.memory(*operand) for role, operand in used.items()}
        arguments = (Argument(_ROLES[role], h.value) for role, h in handles.items())
        table = (Argument * len(handles))(*arguments)
        stream = objects.stream(dev.lane)
        step = _Call(loaded().execute, self.compiled, stream, len(handles), table)
        step.alive = (self, list(handles.values()), [array for _, array in used.values()])
        if not self._counted:
            self._counted, dev.compiled_bytes = True, dev.compiled_bytes + PRIMITIVE_BYTES
        return step


def _parameter(argument: Any) -> Any:
    """Return an argument of a primitive as C reads it."""
    if isinstance(argument, Layout):
        return argument.handle
    if isinstance(argument, tuple):
        return numbers(argument)
    return ctypes.c_float(argument) if isinstance(argument, float) else argument


_latest: deque[Primitive] = deque(maxlen=CACHED)


def shared(make: Callable[..., Primitive]) -> Callable[..., Primitive]:
    """Let what ``make`` compiles be one primitive for all plans, as long as one of them calls it.

    The latest few live without a plan: plans that are bound again find them.
    """
    primitives: WeakValueDictionary[tuple[Any, ...], Primitive] = WeakValueDictionary()

    @wraps(make)
    def get(*key: Any) -> Primitive:
        primitive = primitives.get(key)
        if primitive is None:
            primitive = primitives[key] = make(*key)
            _latest.append(primitive)
        return primitive

    return get


class _Call(partial[Any]):
    """A call that keeps its operands alive."""

    alive: Any


class _Objects:
    """The library's objects of one plan: memory by format and address, and a stream for each lane."""

    def __init__(self) -> None:
        self._memories: dict[tuple[Handle, int], Handle] = {}
        self._streams: dict[int, Handle] = {}

    def memory(self, descriptor: Handle, array: Array) -> Handle:
        """Return a memory object; instructions with the same memory in the same format share it."""
        at = address(array)
        memory = self._memories.get((descriptor, at))
        if memory is None:
            memory = self._memories[descriptor, at] = loaded().memory(descriptor, at)
        return memory

    def stream(self, lane: int) -> Handle:
        """Return the stream of a lane, whose instructions run in turn."""
        if lane not in self._streams:
            dnnl = loaded()
            self._streams[lane] = dnnl.owned("stream", "stream_create", dnnl.engine, 1)
        return self._streams[lane]


_of_plans: WeakKeyDictionary[Device, _Objects] = WeakKeyDictionary()


def _objects(dev: Device) -> _Objects:
    objects = _of_plans.get(dev)
    if objects is None:
        objects = _of_plans[dev] = _Objects()
    return objects


class _Pack:
    """A copy of what lasts, in another format; plans of one scope share it.

    ``seen``: how many writes there had been when it was made.
    """

    def __init__(self, dev: Device, wanted: Format) -> None:
        self.format, self.seen = wanted, -1
        room = dev.keep((wanted.nbytes + ALIGNMENT,), np.uint8)
        start = -room.ctypes.data % ALIGNMENT
        self.block = room[start : start + wanted.nbytes]


_packing = Lock()
_packs: WeakKeyDictionary[Writes, dict[int, WeakSet[_Pack]]] = WeakKeyDictionary()


def _packed(
    dev: Device, wanted: Format, layout: Layout, array: Array, before: list[Step]
) -> tuple[Handle, Any]:
    """Return the packed copy of an array that the program does not change; it is made after writes alone."""
    writes = dev.writes if dev.writes is not None else Writes()
    equal = loaded().calls.dnnl_memory_desc_equal
    with _packing:  # executors in several threads may have one scope
        known = _packs.setdefault(writes, {}).setdefault(address(array), WeakSet())
        same = (p for p in known if equal(p.format.descriptor, wanted.descriptor))
        pack = next(same, None) or _Pack(dev, wanted)
        known.add(pack)
    copy = _copy(dev, (layout.handle, array), (wanted.descriptor, pack.block))

    def make() -> None:
        if pack.seen != writes.count:
            copy()
            pack.seen = writes.count

    before.append(make)
    return wanted.descriptor, pack.block


def reordered(dev: Device, source: Array, target: Array) -> list[Step]:
    """Return the call that copies an array into one with other strides."""
    return [_copy(dev, (layout_of(source).handle, source), (layout_of(target).handle, target))]


def _copy(dev: Device, source: tuple[Handle, Any], target: tuple[Handle, Any]) -> Step:
    return _reorder(source[0], target[0]).call(dev, {"src": source, "dst": target})


@shared
def _reorder(source: Handle, target: Handle) -> Primitive:
    engine = loaded().engine
    return Primitive("reorder", source, engine, target, engine)
