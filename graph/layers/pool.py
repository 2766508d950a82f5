"""Pooling of images and volumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...strategies.errors import InvalidType, InvalidValue, require_type
from ..program.variable import Variable
from .arguments import of_family
from .conv import image_format, paddings_of, several
from .helper import layer, layers


def _pool(
    dims: int,
    input: Variable,
    pool_size: int | Sequence[int] = -1,
    pool_type: str = "max",
    pool_stride: int | Sequence[int] = 1,
    pool_padding: Any = 0,
    global_pooling: bool = False,
    use_cudnn: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
    exclusive: bool = True,
    data_format: str = "NCHW",
) -> Variable:
    """Maximum or average over windows of images [N, C, H, W], or volumes, also with channels last.

    Args:
        pool_size: height and width of a window, or one number for both; needed unless ``global_pooling``.
        pool_type: "max" or "avg".
        pool_padding: "SAME", "VALID" or numbers of rows and columns around the images.
        global_pooling: one window is the whole image; the result is [N, C, 1, 1].
        ceil_mode: windows that reach beyond the last rows count, too.
        exclusive: an average leaves out what was padded.

    Raises:
        InvalidType, InvalidValue: an argument has a wrong type or value.
        ShapeError: ``input`` has another rank, or a window is larger than the padded image.
    """
    op_type = f"pool{dims}d"
    last = image_format(data_format, op_type, dims)
    _check_type(pool_type, op_type)
    if not global_pooling and pool_size == -1:
        raise InvalidValue(f"{op_type}: pool_size is needed unless global_pooling is set.")
    require_type(use_cudnn, bool, f"{op_type}: use_cudnn must be True or False")
    paddings, algorithm = paddings_of(pool_padding, last, dims, op_type, "pool_padding")
    if algorithm == "VALID" and ceil_mode:
        raise InvalidValue(f'{op_type}: ceil_mode must be False where pool_padding is "VALID".')
    attrs = {
        "pooling_type": pool_type,
        "ksize": several(pool_size, dims, "pool_size", op_type),
        "global_pooling": global_pooling,
        "strides": several(pool_stride, dims, "pool_stride", op_type),
        "paddings": paddings,
        "padding_algorithm": algorithm,
        "use_cudnn": use_cudnn,
        "ceil_mode": ceil_mode,
        "exclusive": exclusive,
        "data_format": data_format,
    }
    return layer(op_type, name, x=input, **attrs)


def _check_type(pool_type: Any, layer: str) -> None:
    if pool_type not in ("max", "avg"):
        raise InvalidValue(f"{layer}: pool_type must be 'max' or 'avg', got {pool_type!r}.")


pool2d = of_family(_pool, 2, "pool2d")
pool3d = of_family(_pool, 3, "pool3d", data_format="NCDHW")


def indexed(
    dims: int, x: Variable, attrs: dict[str, Any], name: str | None = None
) -> tuple[Variable, Variable]:
    """Return the maxima of windows, and where each lies among the elements of its channel (int32)."""
    op_type = f"max_pool{dims}d_with_index"
    out, mask = layers(op_type, name, "Out Mask", "Mask", x=x, **attrs)
    return out, mask


def _adaptive(
    dims: int,
    input: Variable,
    pool_size: int | Sequence[int],
    pool_type: str = "max",
    require_index: bool = False,
    name: str | None = None,
) -> Any:
    """Pool images [N, C, H, W] to [N, C, *pool_size]; window i of n goes from i H / n to (i + 1) H / n.

    Returns:
        The result; with ``require_index`` also where each maximum lies in its channel, int32.

    Raises:
        InvalidType: an argument has a wrong type.
        InvalidValue: ``pool_type`` is unknown, or averages are to have an index.
    """
    kind = f"adaptive_pool{dims}d"
    require_type(pool_type, str, f"{kind}: pool_type must be a str")
    if not isinstance(pool_size, (int, list, tuple)):
        raise InvalidType(f"{kind}: pool_size must be an int or a list, got {pool_size!r}.")
    require_type(require_index, bool, f"{kind}: require_index must be a bool")
    _check_type(pool_type, kind)
    attrs = {"ksize": several(pool_size, dims, "pool_size", kind), "adaptive": True}
    if pool_type == "max":
        out, mask = indexed(dims, input, attrs, name)
        return (out, mask) if require_index else out
    if require_index:
        raise InvalidValue(f'{kind}: require_index must be False where pool_type is "avg".')
    attrs["pooling_type"] = pool_type
    op_type = f"pool{dims}d"
    return layer(op_type, name, x=input, **attrs)


adaptive_pool2d = of_family(_adaptive, 2, "adaptive_pool2d")
adaptive_pool3d = of_family(_adaptive, 3, "adaptive_pool3d")
