"""Products, embeddings, dropout, padding and views."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from ...functions.framework import get_default_dtype
from ...functions.manipulation import flatten
from ...functions.signatures import reordered
from ...functions.views import unflatten
from ...graph.program.variable import Parameter, Variable
from ...names import publish_definitions
from ...strategies.errors import InvalidArgument, InvalidValue
from .. import functional as F
from .function_layer import DimensionedLayer, FunctionLayer
from .layers import Layer


def named(name: Any) -> str:
    """Return what ``repr`` says of a layer's name."""
    return f", name={name}" if name else ""


class AlphaDropout(FunctionLayer, of=F.alpha_dropout): ...


class FeatureAlphaDropout(FunctionLayer, of=F.feature_alpha_dropout): ...


class CosineSimilarity(FunctionLayer, of=F.cosine_similarity): ...


class Dropout2D(FunctionLayer, of=F.dropout2d): ...


class Dropout3D(FunctionLayer, of=F.dropout3d): ...


class PixelShuffle(FunctionLayer, of=F.pixel_shuffle):
    def extra_repr(self) -> str:
        """Return the arguments that matter."""
        order = "" if self.data_format == "NCHW" else f", data_format={self.data_format}"
        return f"upscale_factor={self.upscale_factor}{order}{named(self.name)}"


class PixelUnshuffle(FunctionLayer, of=F.pixel_unshuffle): ...


class ChannelShuffle(FunctionLayer, of=F.channel_shuffle): ...


_WINDOWS = "kernel_sizes dilations paddings strides name"


class Unfold(FunctionLayer, of=reordered(F.unfold, f"input=x {_WINDOWS}")):
    def extra_repr(self) -> str:
        """Return the arguments that matter."""
        return (
            f"kernel_size={self.kernel_sizes}, dilation={self.dilations}, padding={self.paddings}, "
            f"stride={self.strides}{named(self.name)}"
        )


class Fold(FunctionLayer, of=reordered(F.fold, f"input=x output_sizes {_WINDOWS}")):
    extra_repr = Unfold.extra_repr


class Identity(Layer):
    """Return what it is given; arguments of the constructor change nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """Return ``input``."""
        return input


class Linear(Layer):
    """x @ weight + bias, with a weight [in_features, out_features]."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        weight_attr: Any = None,
        bias_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=get_default_dtype())
        self.weight = self.create_parameter([in_features, out_features], weight_attr)
        self.bias = self.create_parameter([out_features], bias_attr, is_bias=True)
        self.name = name

    def forward(self, input: Variable) -> Variable:
        """[..., in_features] to [..., out_features]."""
        return F.linear(input, self.weight, self.bias, self.name)

    def extra_repr(self) -> str:
        """Return the arguments that matter."""
        rows, columns = self.weight.shape
        return f"in_features={rows}, out_features={columns}, dtype={self._dtype}{named(self.name)}"


class Bilinear(Layer):
    """x1 weight[k] x2 + bias[k] for each of ``out_features`` matrices weight[k]."""

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        weight_attr: Any = None,
        bias_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=get_default_dtype())
        self._sizes, self._name = (in1_features, in2_features, out_features), name
        self.weight = self.create_parameter([out_features, in1_features, in2_features], weight_attr)
        self.bias = self.create_parameter([1, out_features], bias_attr, is_bias=True)

    def forward(self, x1: Variable, x2: Variable) -> Variable:
        """[N, in1_features] and [N, in2_features] to [N, out_features]."""
        return F.bilinear(x1, x2, self.weight, self.bias, self._name)

    def extra_repr(self) -> str:
        """Return the arguments that matter."""
        first, second, out = self._sizes
        return (
            f"in1_features={first}, in2_features={second}, out_features={out}, "
            f"dtype={self._dtype}{named(self._name)}"
        )


class Embedding(Layer):
    """Rows of a weight [num_embeddings, embedding_dim] for ids; the row ``padding_idx`` counts as zeros.

    Raises:
        InvalidValue: a size is not above 0, or ``padding_idx`` is no row.
        Unsupported: ``max_norm`` or ``scale_grad_by_freq`` is asked for (when called).
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        *,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Parameter | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
        weight_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=get_default_dtype() if dtype is None else dtype)
        if num_embeddings <= 0 or embedding_dim <= 0:
            raise InvalidValue(
                f"Embedding: sizes must be above 0, got {num_embeddings} and {embedding_dim}."
            )
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise InvalidValue(
                f"Embedding: padding_idx={padding_idx} is outside the {num_embeddings} rows."
            )
        self._num_embeddings, self._embedding_dim = num_embeddings, embedding_dim
        self.padding_idx, self._name = padding_idx, name
        self._max_norm, self._norm_type = max_norm, norm_type
        self._scale_grad_by_freq, self._sparse = scale_grad_by_freq, sparse
        size = [num_embeddings, embedding_dim]
        if _weight is not None and list(_weight.shape or ()) != size:
            raise InvalidArgument(f"Embedding: the weight must have the shape {size}.")
        self.weight = self.create_parameter(size, weight_attr) if _weight is None else _weight
        if _weight is not None or weight_attr is None:
            self.weight.stop_gradient = _freeze

    def forward(self, x: Variable) -> Variable:
        """[...] ids to [..., embedding_dim]."""
        return F.embedding(
            x,
            self.weight,
            self.padding_idx,
            self._max_norm,
            self._norm_type,
            self._sparse,
            self._scale_grad_by_freq,
            self._name,
        )

    def extra_repr(self) -> str:
        """Return the arguments that matter."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return (
            f"{self._num_embeddings}, {self._embedding_dim}{padding}, sparse={self._sparse}, "
            f"scale_grad_by_freq={self._scale_grad_by_freq}{named(self._name)}"
        )


class Dropout(Layer):
    """Zero elements with probability ``p`` while training.

    With ``axis`` one draw serves the other dimensions.
    """

    def __init__(
        self,
        p: float = 0.5,
        inplace: bool = False,
        axis: Any = None,
        mode: Literal["upscale_in_train", "downscale_in_infer"] = "upscale_in_train",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.p, self.inplace, self.axis, self.mode, self.name = p, inplace, axis, mode, name

    def forward(self, input: Variable) -> Variable:
        """Drop out, or, when not training, scale as ``mode`` says."""
        return F.dropout(input, self.p, self.axis, self.training, mode=self.mode, name=self.name)

    def extra_repr(self) -> str:
        """Return the arguments that matter."""
        return f"p={self.p}, axis={self.axis}, mode={self.mode}{named(self.name)}, inplace={self.inplace}"


class Flatten(
    FunctionLayer, of=reordered(flatten, "input=x start_axis stop_axis", start_axis=1), shown=()
): ...


class Unflatten(FunctionLayer, of=reordered(unflatten, "input=x axis shape name")): ...


class PairwiseDistance(FunctionLayer, of=F.pairwise_distance):
    def extra_repr(self) -> str:
        """Return the arguments that matter."""
        epsilon = "" if self.epsilon == 1e-6 else f", epsilon={self.epsilon}"
        keepdim = f", keepdim={self.keepdim}" if self.keepdim else ""
        return f"p={self.p}{epsilon}{keepdim}{named(self.name)}"


class _Pad(DimensionedLayer):
    def __init__(
        self,
        padding: Any,
        mode: Literal["constant", "reflect", "replicate", "circular"] = "constant",
        value: float = 0.0,
        data_format: str = "",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.padding = [padding] * (2 * self._dims) if isinstance(padding, int) else padding
        self._mode, self.value, self._data_format, self._name = mode, value, data_format, name

    def forward(self, x: Variable) -> Variable:
        """Return x with a margin."""
        return F.pad(x, self.padding, self._mode, self.value, self._data_format, name=self._name)

    def extra_repr(self) -> str:
        """Return the arguments that matter."""
        return (
            f"padding={self.padding}, mode={self._mode}, value={self.value}, "
            f"data_format={self._data_format}{named(self._name)}"
        )


class Pad1D(_Pad, data_format="NCL"):
    """A margin on both sides of sequences: one number, or left and right."""


class Pad2D(_Pad, data_format="NCHW"):
    """A margin around images: one number, or left, right, top and bottom."""


class Pad3D(_Pad, data_format="NCDHW"):
    """A margin around volumes: one number, or left, right, top, bottom, front and back."""


_MARGINS = {
    "constant": "Zeros",
    "reflect": "A reflection",
    "replicate": "The edges again",
    "circular": "The other end",
}
_SIDES = {
    "NCL": "both sides of sequences: one number, or left and right",
    "NCHW": "all sides of images: one number, or left, right, top and bottom",
    "NCDHW": "all sides of volumes: one number, or left, right, top, bottom, front and back",
}


class _FixedPad(_Pad):
    """A margin of one kind."""

    _kind: ClassVar[Any]

    def __init_subclass__(cls, kind: str, data_format: str, **kwargs: Any) -> None:
        super().__init_subclass__(data_format=data_format, **kwargs)
        cls._kind, cls.__doc__ = kind, f"{_MARGINS[kind]} on {_SIDES[data_format]}."

    def __init__(self, padding: Any, data_format: str = "", name: str | None = None) -> None:
        super().__init__(padding, self._kind, 0.0, data_format, name)


class ZeroPad1D(_FixedPad, kind="constant", data_format="NCL"): ...


class ZeroPad2D(_FixedPad, kind="constant", data_format="NCHW"): ...


class ZeroPad3D(_FixedPad, kind="constant", data_format="NCDHW"): ...


class ReflectionPad1D(_FixedPad, kind="reflect", data_format="NCL"): ...


class ReflectionPad2D(_FixedPad, kind="reflect", data_format="NCHW"): ...


class ReflectionPad3D(_FixedPad, kind="reflect", data_format="NCDHW"): ...


class ReplicationPad1D(_FixedPad, kind="replicate", data_format="NCL"): ...


class ReplicationPad2D(_FixedPad, kind="replicate", data_format="NCHW"): ...


class ReplicationPad3D(_FixedPad, kind="replicate", data_format="NCDHW"): ...


class CircularPad1D(_FixedPad, kind="circular", data_format="NCL"): ...


class CircularPad2D(_FixedPad, kind="circular", data_format="NCHW"): ...


class CircularPad3D(_FixedPad, kind="circular", data_format="NCDHW"): ...


class _ConstantPad(_Pad):
    """A margin of one value."""

    def __init__(
        self, padding: Any, value: float, data_format: str = "", name: str | None = None
    ) -> None:
        super().__init__(padding, "constant", value, data_format, name)


class ConstantPad1D(_ConstantPad, data_format="NCL"):
    """One value on both sides of sequences: one number, or left and right."""


class ConstantPad2D(_ConstantPad, data_format="NCHW"):
    """One value on all sides of images: one number, or left, right, top and bottom."""


class ConstantPad3D(_ConstantPad, data_format="NCDHW"):
    """One value on all sides of volumes: one number, or left, right, top, bottom, front and back."""


publish_definitions(__name__, withhold=(named,))
