"""``paddle.nn.functional`` for static programs."""

from ..graph.layers.activations import celu as celu
from ..graph.layers.loss import log_loss as log_loss
from ..graph.layers.loss import softmax_with_cross_entropy as softmax_with_cross_entropy
from ..graph.layers.loss import square_error_cost as square_error_cost
from ..graph.layers.matrices import diag_embed as diag_embed
from ..graph.layers.moves import unfold as unfold
from ..graph.layers.sequence import sequence_mask as sequence_mask
from ..graph.layers.trees import gather_tree as gather_tree
from ..graph.layers.unary import elu as elu
from ..graph.layers.unary import relu as relu
from ..graph.layers.unary import sigmoid as sigmoid
from ..graph.layers.unary import softsign as softsign
from ..graph.layers.unary import tanh as tanh
from ..names import publish_imports
from .activations import *
from .common import *
from .convs import *
from .images import *
from .losses import *
from .norms import *
from .pair_losses import *
from .pooling import *

publish_imports(__name__)
