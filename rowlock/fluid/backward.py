"""``fluid.backward``."""

from ..graph.training.backward import append_backward as append_backward
from ..graph.training.backward import gradients as gradients
from ..names import publish_imports

calc_gradient = gradients  # by its older name

publish_imports(__name__)
