"""``fluid.layers``: the layer functions of Paddle 1.x, by the modules that Paddle keeps them in."""

from ...names import publish_imports
from .control_flow import *
from .detection import *
from .distributions import *
from .io import *
from .learning_rate_scheduler import *
from .loss import *
from .metric_op import *
from .nn import *
from .ops import *
from .rnn import *  # among them a function of the module's own name
from .sequence_lod import *
from .tensor import *

publish_imports(__name__)
