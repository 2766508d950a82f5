"""``fluid.input``: embeddings of indices."""

from ..graph.layers.nn import embedding_v2 as embedding
from ..graph.layers.shape import one_hot_v2 as one_hot
from ..names import publish_listed

__all__ = ["embedding", "one_hot"]

publish_listed(__name__)
