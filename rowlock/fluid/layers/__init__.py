"""``fluid.layers``: the layer functions of Paddle 1.x, by the modules that Paddle keeps them in."""

from ...names import listing, missing
from . import (
    control_flow,
    detection,
    distributions,
    io,
    learning_rate_scheduler,
    loss,
    metric_op,
    nn,
    ops,
    sequence_lod,
    tensor,
)
from .control_flow import *  # noqa: F403
from .detection import *  # noqa: F403
from .distributions import *  # noqa: F403
from .io import *  # noqa: F403
from .learning_rate_scheduler import *  # noqa: F403
from .loss import *  # noqa: F403
from .metric_op import *  # noqa: F403
from .nn import *  # noqa: F403
from .ops import *  # noqa: F403
from .rnn import *  # noqa: F403 - among them a function of the module's own name
from .rnn import __all__ as _rnn_names
from .sequence_lod import *  # noqa: F403
from .tensor import *  # noqa: F403

__all__ = (
    control_flow.__all__
    + detection.__all__
    + distributions.__all__
    + io.__all__
    + learning_rate_scheduler.__all__
    + loss.__all__
    + metric_op.__all__
    + nn.__all__
    + ops.__all__
    + _rnn_names
    + sequence_lod.__all__
    + tensor.__all__
)
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
