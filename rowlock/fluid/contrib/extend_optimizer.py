"""``fluid.contrib.extend_optimizer``: optimizers whose weight decay stands apart from gradients."""

from ...graph.training import optimizer as _optimizer
from ...names import publish_imports

extend_with_decoupled_weight_decay = _optimizer.extend_with_decoupled_weight_decay

publish_imports(__name__)
