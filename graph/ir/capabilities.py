"""Capabilities that replicas report, by which the compiler chooses kernels, layouts and precisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .graph import Node

Takes = Callable[[Node], bool]
IN_ORDER, CHANNELS_LAST = "", "NHWC"  # of the shape of images; channels behind rows and columns
ROUNDED = "bfloat16"  # of the elements of any value: float32 rounded to 16 bits, in the order of the shape
ROUNDED_LAST = f"{CHANNELS_LAST} {ROUNDED}"
AS_THEY_COME = "any"  # in either order, the same for all images of a node
# Input slot -> the results of whose products it is a factor; of none: it is read for its signs alone
Factors = Mapping[str, Sequence[str]]
# A kernel's order of images, or what tells it from a node and how exact products are
Layout = str | Callable[[Node, str], str]


@dataclass(frozen=True)
class BackEnd:
    """An array module, or a library that computes on its arrays.

    ``arrays`` is the array module. ``takes`` tells of op types which nodes have a kernel (None: all),
    ``layouts`` in which order their kernels compute images fastest; others need them in that of their shape.

    ``any_order``: the op types whose kernels take images in any order of memory. ``variant``: other kernels of
    a library's ops, each chosen only where it was measured to be faster; ``always_exact``: they round no
    factors, where the library's own kernels do.

    ``rounds``: to what it can round factors of products, and of which op types (None: of all that it computes);
    ``exact``: why it rounds none here, though it could on other processors; ``factors``: by op type, what may
    lie rounded in memory. ``remedy``, of an array module, is what to do where no library rounds.
    """

    arrays: str
    takes: Mapping[str, Takes | None]
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    rounds: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    exact: str = ""
    factors: Mapping[str, Factors] = field(default_factory=dict)
    remedy: str = ""
    any_order: frozenset[str] = frozenset()
    variant: bool = False
    always_exact: bool = False


# By name: array modules, and libraries in the order in which they are preferred
Capabilities = Mapping[str, BackEnd]


def libraries(capabilities: Capabilities, array_module: str) -> dict[str, BackEnd]:
    """Return the libraries that compute on arrays of a module, without variants."""
    return {
        name: back_end
        for name, back_end in capabilities.items()
        if back_end.arrays == array_module and name != array_module and not back_end.variant
    }


def variants(capabilities: Capabilities) -> list[str]:
    """Return the names of the variants of libraries."""
    return [name for name, back_end in capabilities.items() if back_end.variant]
