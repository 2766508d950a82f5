"""``fluid.input``: embeddings of indices."""

from ..graph.layers.nn import embedding_v2 as embedding
from ..graph.layers.shape import one_hot_v2 as one_hot
from ..names import listing, missing

__all__ = ["embedding", "one_hot"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
