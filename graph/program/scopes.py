"""Context managers that stamp ops built inside: ``name_scope``, a readable path, and ``device_guard``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...strategies.errors import InvalidArgument, InvalidValue


class _NameScope:
    """One level of the path. Siblings of the same prefix are numbered for the whole process."""

    def __init__(self, name: str = "", parent: _NameScope | None = None) -> None:
        self.name = name
        self.parent = parent
        self._children: dict[str, int] = {}

    def child(self, prefix: str) -> _NameScope:
        number = self._children.get(prefix, 0)
        self._children[prefix] = number + 1
        return _NameScope(prefix if number == 0 else f"{prefix}_{number}", self)

    @property
    def path(self) -> str:
        return "/" if self.parent is None else f"{self.parent.path}{self.name}/"


_current = _NameScope()


def current_name_scope() -> str:
    """Return the path of the scope in force, such as ``/`` or ``/optimizer_1/``."""
    return _current.path


@contextmanager
def name_scope(prefix: str | None = None) -> Iterator[None]:
    """Stamp ops built inside with a path that ends in ``prefix`` (numbered if used before).

    Raises:
        InvalidArgument: ``prefix`` is empty.
    """
    global _current
    if not prefix:
        raise InvalidArgument("name_scope needs a prefix that is not empty.")
    _current = _current.child(prefix)
    try:
        yield
    finally:
        assert _current.parent is not None
        _current = _current.parent


_device = ""


def current_device() -> str:
    """Return the device of the ``device_guard`` in force: "cpu", "gpu", "gpu:all" or "" (none)."""
    return _device


@contextmanager
def device_guard(device: str | None = None) -> Iterator[None]:
    """Have ops built inside run on the host ("cpu") or on the GPU ("gpu", "gpu:all") of their place.

    None and "" choose no device, also inside another guard. On CPU places everything runs on the CPU.

    Raises:
        InvalidValue: another device; the message gives the reason.
    """
    global _device
    if device not in ("cpu", "gpu", "gpu:all", "", None):
        raise InvalidValue(
            f'device_guard takes "cpu", "gpu", "gpu:all", an empty string or None, got {device!r}: '
            f"{_describe_refusal(device)}."
        )
    outer, _device = _device, device or ""
    try:
        yield
    finally:
        _device = outer


def _describe_refusal(device: object) -> str:
    kind, colon, _ = device.partition(":") if isinstance(device, str) else ("", "", "")
    if kind == "gpu" and colon:
        return 'a replica has one GPU, that of its place; "gpu" names it'
    if kind == "cpu" and colon:
        return "a CPU has no number"
    if kind in ("npu", "xpu", "mlu", "ipu"):
        return f"Rowlock computes on CPUs and GPUs, not on {kind.upper()}s"
    return "there is no such device"
