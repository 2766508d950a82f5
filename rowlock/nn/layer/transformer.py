"""Transformers. Vaswani et al., arXiv 1706.03762."""

from __future__ import annotations

from copy import copy
from typing import Any

from ...functions.creation import full, triu
from ...functions.framework import get_default_dtype
from ...graph.layers import shape as layers
from ...graph.layers.arguments import check_variable
from ...graph.layers.binary import matmul
from ...graph.layers.param_attr import ParamAttr
from ...graph.program.variable import Variable
from ...names import publish_definitions
from ...strategies.errors import InvalidArgument, Unsupported
from ...strategies.types import INTEGERS, VarType
from .. import functional as F
from .common import Dropout, Linear
from .container import LayerList
from .layers import Layer
from .norm import LayerNorm


def _positive(layer: str, **sizes: int) -> None:
    for name, size in sizes.items():
        if size <= 0:
            raise InvalidArgument(f"{layer}: {name} must be above 0, got {size}.")


def _refuse_cache(cache: Any) -> None:
    if cache is not None:
        raise Unsupported(
            "caches of attention are imperative (dygraph), and Rowlock is static-graph: leave cache out."
        )


def _attrs(attr: Any, parts: int) -> list[Any]:
    """Return an attribute for each part; one that is named gives each a name of its own.

    Raises:
        InvalidArgument: there is another number of attributes.
    """
    if isinstance(attr, (list, tuple)):
        if len(attr) != parts:
            raise InvalidArgument(f"{parts} parameter attributes are needed, got {len(attr)}.")
        return list(attr)
    whole = ParamAttr.of(attr)
    if whole is None:
        return [False] * parts
    attrs = [copy(whole) for _ in range(parts)]
    for i, part in enumerate(attrs):
        part.name = f"{whole.name}_{i}" if whole.name else None
    return attrs


def _additive(mask: Variable | None, dtype: Any) -> Variable | None:
    """Return what is added to products: bools and ints become 0 where set and -1e9 elsewhere."""
    if mask is None:
        return None
    check_variable(mask, "attn_mask", "MultiHeadAttention")
    if mask.dtype == dtype:
        return mask
    if mask.dtype == VarType.BOOL or mask.dtype in INTEGERS:
        return (layers.cast(mask, dtype) - 1.0) * 1e9
    return layers.cast(mask, dtype)


class MultiHeadAttention(Layer):
    """softmax(q k / sqrt(head_dim) + mask) v in each head, between projections.

    Args:
        embed_dim: width of queries and of the result; a multiple of ``num_heads``.
        dropout: probability to drop a weight while training.
        kdim: width of keys, default ``embed_dim``; vdim: of values.
        need_weights: also return the weights [N, heads, queries, keys].
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        kdim: int | None = None,
        vdim: int | None = None,
        need_weights: bool = False,
        weight_attr: Any = None,
        bias_attr: Any = None,
    ) -> None:
        super().__init__()
        _positive("MultiHeadAttention", embed_dim=embed_dim, num_heads=num_heads)
        if embed_dim % num_heads:
            raise InvalidArgument(
                f"MultiHeadAttention: embed_dim={embed_dim} does not divide by {num_heads} heads."
            )
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.dropout, self.need_weights = dropout, need_weights
        self.q_proj = Linear(embed_dim, embed_dim, weight_attr, bias_attr)
        self.k_proj = Linear(self.kdim, embed_dim, weight_attr, bias_attr)
        self.v_proj = Linear(self.vdim, embed_dim, weight_attr, bias_attr)
        self.out_proj = Linear(embed_dim, embed_dim, weight_attr, bias_attr)

    def _heads(self, x: Variable) -> Variable:
        heads = layers.reshape(x, [0, 0, self.num_heads, self.head_dim])
        return layers.transpose(heads, [0, 2, 1, 3])

    def compute_kv(self, key: Variable, value: Variable) -> tuple[Variable, Variable]:
        """Return keys and values [N, heads, length, head_dim]."""
        return self._heads(self.k_proj(key)), self._heads(self.v_proj(value))

    def gen_cache(self, key: Variable, value: Any = None, type: Any = None) -> Any:
        """Refuse: caches are of the imperative mode."""
        _refuse_cache(key)

    def forward(
        self,
        query: Variable,
        key: Variable | None = None,
        value: Variable | None = None,
        attn_mask: Variable | None = None,
        cache: Any = None,
    ) -> Any:
        """[N, queries, embed_dim]; with ``need_weights`` also the weights.

        ``attn_mask`` fits [N, heads, queries, keys]: numbers that are added, or bools or ints, set where a key
        counts. Keys and values are the queries unless given.

        Raises:
            Unsupported: a ``cache`` is given.
        """
        _refuse_cache(cache)
        q = self._heads(self.q_proj(query))
        k, v = self.compute_kv(query if key is None else key, query if value is None else value)
        product = matmul(q * self.head_dim**-0.5, k, transpose_y=True)
        mask = _additive(attn_mask, product.dtype)
        weights = F.softmax(product if mask is None else product + mask)
        if self.dropout:
            weights = F.dropout(weights, self.dropout, training=self.training)
        heads = layers.transpose(matmul(weights, v), [0, 2, 1, 3])
        out = self.out_proj(layers.reshape(heads, [0, 0, self.embed_dim]))
        return (out, weights) if self.need_weights else out


class _Block(Layer):
    """Attentions and two products, each with dropout, a sum and a norm around it."""

    _attentions: tuple[str, ...]

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int,
        dropout: float = 0.1,
        activation: str = "relu",
        attn_dropout: float | None = None,
        act_dropout: float | None = None,
        normalize_before: bool = False,
        weight_attr: Any = None,
        bias_attr: Any = None,
        layer_norm_eps: float = 1e-5,
    ) -> None:
        self._config = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        super().__init__()
        kind, parts = type(self).__name__, len(self._attentions) + 1
        _positive(kind, d_model=d_model, nhead=nhead, dim_feedforward=dim_feedforward)
        weights, biases = _attrs(weight_attr, parts), _attrs(bias_attr, parts)
        attn_dropout = dropout if attn_dropout is None else attn_dropout
        self.normalize_before = normalize_before
        for i, name in enumerate(self._attentions):
            attention = MultiHeadAttention(
                d_model, nhead, attn_dropout, weight_attr=weights[i], bias_attr=biases[i]
            )
            self.add_sublayer(name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, weights[-1], biases[-1])
        self.dropout = Dropout(dropout if act_dropout is None else act_dropout)
        self.linear2 = Linear(dim_feedforward, d_model, weights[-1], biases[-1])
        for i in range(1, parts + 1):
            self.add_sublayer(f"norm{i}", LayerNorm(d_model, layer_norm_eps))
        for i in range(1, parts + 1):
            self.add_sublayer(f"dropout{i}", Dropout(dropout))
        self.activation = getattr(F, activation)

    def _around(self, number: int, x: Variable, function: Any) -> Variable:
        """Return x + dropout(function(x)), normalised before or after."""
        norm, dropout = getattr(self, f"norm{number}"), getattr(self, f"dropout{number}")
        before = self.normalize_before
        total: Variable = x + dropout(function(norm(x) if before else x))
        result: Variable = total if before else norm(total)
        return result

    def _feed_forward(self, x: Variable) -> Variable:
        result: Variable = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return result

    def gen_cache(self, *inputs: Any) -> Any:
        """Refuse: caches are of the imperative mode."""
        _refuse_cache(inputs)


class TransformerEncoderLayer(_Block):
    """Self-attention and two products.

    Args:
        dim_feedforward: width between the products; act_dropout: dropout there.
        activation: a name of ``nn.functional``.
        normalize_before: normalise what an attention or product reads, not the sums.
        weight_attr, bias_attr: one for all, or two: of the attention and of the products.
    """

    _attentions = ("self_attn",)

    def forward(self, src: Variable, src_mask: Variable | None = None, cache: Any = None) -> Any:
        """[N, length, d_model] to the same shape."""
        _refuse_cache(cache)
        mask = _additive(src_mask, src.dtype)
        src = self._around(1, src, lambda x: self.self_attn(x, x, x, mask))
        return self._around(2, src, self._feed_forward)


class TransformerDecoderLayer(_Block):
    """Self-attention, attention to a memory, and two products.

    Args:
        dim_feedforward: width between the products; act_dropout: dropout there.
        activation: a name of ``nn.functional``.
        normalize_before: normalise what an attention or product reads, not the sums.
        weight_attr, bias_attr: one for all, or three: of both attentions and of the products.
    """

    _attentions = ("self_attn", "cross_attn")

    def forward(
        self,
        tgt: Variable,
        memory: Variable,
        tgt_mask: Variable | None = None,
        memory_mask: Variable | None = None,
        cache: Any = None,
    ) -> Any:
        """[N, length, d_model] and a memory [N, length, d_model] to the shape of the first."""
        _refuse_cache(cache)
        own, other = _additive(tgt_mask, tgt.dtype), _additive(memory_mask, memory.dtype)
        tgt = self._around(1, tgt, lambda x: self.self_attn(x, x, x, own))
        tgt = self._around(2, tgt, lambda x: self.cross_attn(x, memory, memory, other))
        return self._around(3, tgt, self._feed_forward)


class _Stack(Layer):
    def __init__(self, layer: Any, num_layers: int, norm: Layer | None) -> None:
        super().__init__()
        others = (type(layer)(**layer._config) for _ in range(num_layers - 1))
        self.layers = LayerList([layer, *others] if num_layers > 0 else [])
        self.num_layers, self.norm = num_layers, norm

    def gen_cache(self, *inputs: Any) -> Any:
        """Refuse: caches are of the imperative mode."""
        _refuse_cache(inputs)


class TransformerEncoder(_Stack):
    """``num_layers`` encoder layers, ``encoder_layer`` and others with its arguments; then ``norm``."""

    def __init__(
        self, encoder_layer: TransformerEncoderLayer, num_layers: int, norm: LayerNorm | None = None
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm)

    def forward(self, src: Variable, src_mask: Variable | None = None, cache: Any = None) -> Any:
        """[N, length, d_model] to the same shape."""
        _refuse_cache(cache)
        mask = _additive(src_mask, src.dtype)
        for layer in self.layers:
            src = layer(src, mask)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(_Stack):
    """``num_layers`` decoder layers, ``decoder_layer`` and others with its arguments; then ``norm``."""

    def __init__(
        self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: LayerNorm | None = None
    ) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Variable,
        memory: Variable,
        tgt_mask: Variable | None = None,
        memory_mask: Variable | None = None,
        cache: Any = None,
    ) -> Any:
        """[N, length, d_model] and a memory [N, length, d_model] to the shape of the first."""
        _refuse_cache(cache)
        own, other = _additive(tgt_mask, tgt.dtype), _additive(memory_mask, memory.dtype)
        for layer in self.layers:
            tgt = layer(tgt, memory, own, other)
        return tgt if self.norm is None else self.norm(tgt)


def _shares(attr: Any, kind: str) -> tuple[Any, Any]:
    """Return the attributes of encoder layers (two) and of decoder layers (three) from one to three."""
    if not isinstance(attr, (list, tuple)):
        return attr, attr
    if not 1 <= len(attr) <= 3:
        raise InvalidArgument(f"Transformer: {kind} has one to three attributes, got {len(attr)}.")
    first, last = attr[0], attr[-1]
    return [first, last], list(attr) if len(attr) == 3 else [first, first, last]


class Transformer(Layer):
    """An encoder, and a decoder that attends to what it returns.

    Args:
        weight_attr, bias_attr: one for all, or up to three: of self-attentions, of attentions to the
            memory, and of products.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        attn_dropout: float | None = None,
        act_dropout: float | None = None,
        normalize_before: bool = False,
        weight_attr: Any = None,
        bias_attr: Any = None,
        custom_encoder: Layer | None = None,
        custom_decoder: Layer | None = None,
    ) -> None:
        super().__init__()
        _positive("Transformer", d_model=d_model, nhead=nhead, dim_feedforward=dim_feedforward)
        (encoder_weights, decoder_weights) = _shares(weight_attr, "weight_attr")
        (encoder_biases, decoder_biases) = _shares(bias_attr, "bias_attr")
        same = (d_model, nhead, dim_feedforward, dropout, activation, attn_dropout, act_dropout)
        if custom_encoder is None:
            layer = TransformerEncoderLayer(
                *same, normalize_before, encoder_weights, encoder_biases
            )
            custom_encoder = TransformerEncoder(layer, num_encoder_layers, LayerNorm(d_model))
        self.encoder = custom_encoder
        if custom_decoder is None:
            two = TransformerDecoderLayer(*same, normalize_before, decoder_weights, decoder_biases)
            custom_decoder = TransformerDecoder(two, num_decoder_layers, LayerNorm(d_model))
        self.decoder = custom_decoder
        self.d_model, self.nhead = d_model, nhead

    def forward(
        self,
        src: Variable,
        tgt: Variable,
        src_mask: Variable | None = None,
        tgt_mask: Variable | None = None,
        memory_mask: Variable | None = None,
    ) -> Any:
        """[N, source length, d_model] and [N, target length, d_model] to the shape of the second."""
        return self.decoder(tgt, self.encoder(src, src_mask), tgt_mask, memory_mask)

    def generate_square_subsequent_mask(self, length: int) -> Variable:
        """Return a mask [length, length] that hides what comes later: -inf above the diagonal, else 0."""
        return triu(full([length, length], -float("inf"), get_default_dtype()), 1)


publish_definitions(__name__)
