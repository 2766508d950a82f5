"""``paddle.nn``: layers, gradient clips, initializers, and functions of tensors."""

from .. import tensor as _methods  # noqa: F401 - it gives Variable its methods
from ..graph.training import clip as _clip
from ..names import publish_imports
from . import functional as functional
from . import initializer as initializer
from . import utils as utils
from .decode import BeamSearchDecoder as BeamSearchDecoder
from .decode import dynamic_decode as dynamic_decode
from .layer.activation import *
from .layer.channel_norm import *
from .layer.common import *
from .layer.container import *
from .layer.conv import *
from .layer.images import *
from .layer.layers import Layer as Layer
from .layer.loss import *
from .layer.norm import *
from .layer.pooling import *
from .layer.rnn import *
from .layer.transformer import *

ClipGradByGlobalNorm = _clip.GradientClipByGlobalNorm
ClipGradByNorm = _clip.GradientClipByNorm
ClipGradByValue = _clip.GradientClipByValue

_SPELLED_ALSO = {
    **{"Module": "Layer", "ModuleDict": "LayerDict", "ModuleList": "LayerList"},
    **{f"LPPool{dims}d": f"LPPool{dims}D" for dims in (1, 2)},
    **{
        f"{kind}{dims}d": f"{kind}{dims}D"
        for kind in (
            "AdaptiveMaxPool",
            "Conv",
            "CircularPad",
            "ConstantPad",
            "ReflectionPad",
            "ReplicationPad",
        )
        for dims in (1, 2, 3)
    },
}
globals().update({name: globals()[other] for name, other in _SPELLED_ALSO.items()})

publish_imports(__name__, functional, initializer, utils)
