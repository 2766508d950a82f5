"""``fluid.backward``."""

from ..graph.training.backward import append_backward as append_backward
from ..graph.training.backward import gradients as gradients
from ..names import publish_imports

publish_imports(__name__)
