"""Lists of ops that compute in low precision: Paddle's, and a user's changes to them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ....strategies.errors import InvalidType, InvalidValue, nearest
from ....strategies.types import VarType
from ...ops.registry import OPS
from ...program.formats.op_table import entry_of
from ...program.where import warn_user

LOW: dict[str, VarType] = {"float16": VarType.FP16, "bfloat16": VarType.BF16}

# Products: always in low precision.
WHITE = frozenset(
    ("conv2d", "depthwise_conv2d", "matmul", "matmul_v2", "mul", "einsum", "fused_gemm_epilogue")
)
# Ops whose results leave the range of float16, or lose too much of their digits: always in float32.
BLACK = frozenset(
    (
        "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "pow", "square", "cumsum",
        "cumprod", "reduce_sum", "mean", "reduce_mean", "reduce_prod", "p_norm", "frobenius_norm",
        "group_norm", "layer_norm", "softmax", "softplus", "log_softmax", "softmax_with_cross_entropy",
        "sigmoid_cross_entropy_with_logits", "cross_entropy", "cross_entropy2", "huber_loss", "log_loss",
        "nll_loss",
    )
)  # fmt: skip
# Ops that gain nothing in low precision: in float32 at every level.
SLOW = frozenset(("lookup_table", "lookup_table_v2", "scatter"))
# Ops that follow the precision of their operands.
GRAY = frozenset(
    (
        "elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_div", "elementwise_max",
        "elementwise_min", "elementwise_pow", "elementwise_mod", "elementwise_floordiv", "batch_norm",
        "tanh", "sigmoid", "top_k", "pool2d", "pool3d", "dropout", "relu", "relu6", "leaky_relu",
        "soft_relu", "flatten2", "stack", "unstack", "slice", "scale", "transpose2", "reshape2", "gather",
        "sign", "cast", "concat", "split", "fused_bn_add_activation",
    )
)  # fmt: skip

# Paddle 1.8's lists.
WHITE_18 = frozenset(("conv2d", "matmul", "mul"))
BLACK_18 = frozenset(
    (
        "exp", "square", "log", "mean", "sum", "cos_sim", "softmax", "softmax_with_cross_entropy",
        "sigmoid_cross_entropy_with_logits", "cross_entropy", "cross_entropy2",
    )
)  # fmt: skip
GRAY_18 = (GRAY - {"concat", "split", "fused_bn_add_activation"}) | {"lookup_table"}


def low_type(dtype: Any, caller: str) -> VarType:
    """Return FP16 or BF16 for its name or VarType.

    Raises:
        InvalidValue: another type.
    """
    low = LOW.get(dtype.lower()) if isinstance(dtype, str) else dtype
    if low is None or low not in LOW.values():
        raise InvalidValue(f"{caller}: dtype must be 'float16' or 'bfloat16', got {dtype!r}.")
    return VarType(low)


class AutoMixedPrecisionLists:
    """The lists in force: Paddle's, with a user's ops moved to the white or the black one.

    An op that reads or writes a variable in ``custom_black_varnames`` computes in float32. Names of ops that
    neither Rowlock nor Paddle 1.8.5 has are warned of.

    Raises:
        InvalidValue: an op is in both custom lists, or ``dtype`` is no low precision.
        InvalidType: a list that is no collection of names.
    """

    defaults = (WHITE, BLACK | SLOW, GRAY)

    def __init__(
        self,
        custom_white_list: Collection[str] | None = None,
        custom_black_list: Collection[str] | None = None,
        custom_black_varnames: Collection[str] | None = None,
        dtype: str = "float16",
    ) -> None:
        white = _names(custom_white_list, "custom_white_list")
        black = _names(custom_black_list, "custom_black_list")
        both = ", ".join(sorted(white & black))
        if both:
            raise InvalidValue(
                f"mixed precision: {both} in custom_white_list and custom_black_list."
            )
        self.amp_dtype = (
            "bfloat16" if low_type(dtype, "lists of ops") == VarType.BF16 else "float16"
        )
        for name in sorted(white | black):
            if name not in OPS and entry_of(name) is None:
                warn_user(
                    f"mixed precision: {name!r} in the lists is no op, so it changes nothing."
                    f"{nearest(name, OPS)}"
                )
        white_list, black_list, gray_list = self.defaults
        self.white_list = (set(white_list) | white) - black
        self.black_list = (set(black_list) - white) | black
        self.gray_list = set(gray_list) - white - black
        self.black_varnames = _names(custom_black_varnames, "custom_black_varnames")
        self.unsupported_list = set(black)

    @property
    def all_list(self) -> set[str]:
        """Every op there is."""
        return set(OPS)


class AutoMixedPrecisionLists18(AutoMixedPrecisionLists):
    """Paddle 1.8's lists; its dtype is float16."""

    defaults = (WHITE_18, BLACK_18, GRAY_18)

    def __init__(
        self,
        custom_white_list: Collection[str] | None = None,
        custom_black_list: Collection[str] | None = None,
        custom_black_varnames: Collection[str] | None = None,
    ) -> None:
        super().__init__(custom_white_list, custom_black_list, custom_black_varnames)


class AutoMixedPrecisionListsBF16(AutoMixedPrecisionLists):
    """The lists under the names of ``static.amp.bf16``."""

    def __init__(
        self,
        custom_bf16_list: Collection[str] | None = None,
        custom_fp32_list: Collection[str] | None = None,
        custom_fp32_varnames: Collection[str] | None = None,
    ) -> None:
        super().__init__(custom_bf16_list, custom_fp32_list, custom_fp32_varnames, "bfloat16")

    @property
    def bf16_list(self) -> set[str]:
        """Ops that compute in bfloat16."""
        return self.white_list

    @property
    def fp32_list(self) -> set[str]:
        """Ops that compute in float32."""
        return self.black_list

    @property
    def fp32_varnames(self) -> set[str]:
        """Variables whose readers and writers compute in float32."""
        return self.black_varnames


def _names(value: Any, argument: str) -> set[str]:
    if value is None:
        return set()
    several = isinstance(value, (set, frozenset, list, tuple))
    names = set(value) if several else set()
    if not several or not all(isinstance(name, str) for name in names):
        raise InvalidType(
            f"mixed precision: {argument} must be a set or list of names, got {value!r}."
        )
    return names
