"""A small GPT with Paddle's calls, for tests of what is fused in it; it runs on Paddle 1.8.5 as well."""

from __future__ import annotations

from typing import Any

import numpy as np

WIDTH, WORDS, TOKENS, HEADS = 16, 12, 8, 2


def build(fluid: Any, layers: int = 2, dropout: float = 0.0) -> Any:
    """Add the net to the default program; returns the loss. Feeds are words, next (words) and mask."""
    L = fluid.layers
    words = L.data("words", [TOKENS], dtype="int64")
    following = L.data("next", [TOKENS, 1], dtype="int64")
    mask = L.data("mask", [TOKENS, TOKENS], append_batch_size=False)
    h = fluid.embedding(words, (WORDS, WIDTH))
    h = L.elementwise_add(h, L.create_parameter([TOKENS, WIDTH], "float32"), axis=1)
    for _ in range(layers):
        h = h + attention(fluid, L.layer_norm(h, begin_norm_axis=2), mask, dropout)
        hidden = L.layer_norm(h, begin_norm_axis=2)
        hidden = L.fc(hidden, 4 * WIDTH, num_flatten_dims=2, act="gelu")
        h = h + L.fc(hidden, WIDTH, num_flatten_dims=2)
    scores = L.fc(L.layer_norm(h, begin_norm_axis=2), WORDS, num_flatten_dims=2)
    return L.mean(L.softmax_with_cross_entropy(scores, following))


def attention(fluid: Any, x: Any, mask: Any, dropout: float = 0.0) -> Any:
    """Self-attention from one projection to queries, keys and values together."""
    L = fluid.layers
    packed = L.reshape(
        L.fc(x, 3 * WIDTH, num_flatten_dims=2, bias_attr=False),
        [0, TOKENS, 3, HEADS, WIDTH // HEADS],
    )
    parts = L.split(L.transpose(packed, [2, 0, 3, 1, 4]), 3, 0)
    q, k, v = (L.squeeze(part, [0]) for part in parts)
    scores = L.matmul(q, k, transpose_y=True, alpha=(WIDTH // HEADS) ** -0.5)
    weights = L.softmax(L.elementwise_add(scores, mask, axis=2))
    if dropout:
        weights = L.dropout(weights, dropout, dropout_implementation="upscale_in_train")
    heads = L.transpose(L.matmul(weights, v), [0, 2, 1, 3])
    return L.fc(L.reshape(heads, [0, TOKENS, WIDTH]), WIDTH, num_flatten_dims=2)


def feed(step: int, rows: int = 4) -> dict[str, np.ndarray]:
    """Return the batch of a step: drawn words, and a mask that hides what follows."""
    draw = np.random.RandomState(step)
    mask = np.triu(np.full((TOKENS, TOKENS), -1e9, "float32"), 1)
    words, following = (
        draw.randint(0, WORDS, (rows, TOKENS, *extra)).astype("int64") for extra in ((), (1,))
    )
    return {"words": words, "next": following, "mask": mask}
