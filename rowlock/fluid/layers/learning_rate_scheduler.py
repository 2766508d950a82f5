"""``fluid.layers.learning_rate_scheduler``: learning rates that change with the step."""

from ...graph.training.lr import cosine_decay as cosine_decay
from ...graph.training.lr import decay_step_counter as _decay_step_counter  # noqa: F401 - scripts take it
from ...graph.training.lr import exponential_decay as exponential_decay
from ...graph.training.lr import inverse_time_decay as inverse_time_decay
from ...graph.training.lr import linear_lr_warmup as linear_lr_warmup
from ...graph.training.lr import natural_exp_decay as natural_exp_decay
from ...graph.training.lr import noam_decay as noam_decay
from ...graph.training.lr import piecewise_decay as piecewise_decay
from ...graph.training.lr import polynomial_decay as polynomial_decay
from ...names import publish_imports

publish_imports(__name__)
