"""``paddle.nn``: layers, gradient clips, initializers, and functions of tensors."""

from ..graph.training.clip import GradientClipByGlobalNorm as ClipGradByGlobalNorm
from ..graph.training.clip import GradientClipByNorm as ClipGradByNorm
from ..graph.training.clip import GradientClipByValue as ClipGradByValue
from ..names import listing, missing
from . import functional, initializer
from .layer.activation import (
    ELU,
    GELU,
    SELU,
    Hardshrink,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Maxout,
    PReLU,
    ReLU,
    ReLU6,
    Sigmoid,
    Softmax,
    Softplus,
    Softshrink,
    Softsign,
    Swish,
    Tanh,
    Tanhshrink,
    ThresholdedReLU,
)
from .layer.common import (
    AlphaDropout,
    CosineSimilarity,
    Dropout,
    Dropout2D,
    Dropout3D,
    Embedding,
    Flatten,
    Identity,
    Linear,
    Pad1D,
    Pad2D,
    Pad3D,
    PairwiseDistance,
    PixelShuffle,
)
from .layer.container import LayerDict, LayerList, ParameterList, Sequential
from .layer.conv import Conv1D, Conv2D
from .layer.layers import Layer
from .layer.loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    KLDivLoss,
    L1Loss,
    MarginRankingLoss,
    MSELoss,
    NLLLoss,
    SmoothL1Loss,
)
from .layer.norm import BatchNorm, BatchNorm1D, BatchNorm2D, BatchNorm3D, LayerNorm
from .layer.pooling import (
    AdaptiveAvgPool1D,
    AdaptiveAvgPool2D,
    AdaptiveMaxPool1D,
    AdaptiveMaxPool2D,
    AvgPool1D,
    AvgPool2D,
    MaxPool1D,
    MaxPool2D,
)
from .layer.transformer import (
    MultiHeadAttention,
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)

__all__ = [
    "ELU", "GELU", "SELU", "AdaptiveAvgPool1D", "AdaptiveAvgPool2D", "AdaptiveMaxPool1D",
    "AdaptiveMaxPool2D", "AlphaDropout", "AvgPool1D", "AvgPool2D", "BCELoss", "BCEWithLogitsLoss",
    "BatchNorm", "BatchNorm1D", "BatchNorm2D", "BatchNorm3D", "ClipGradByGlobalNorm", "ClipGradByNorm",
    "ClipGradByValue", "Conv1D", "Conv2D", "CosineSimilarity", "CrossEntropyLoss", "Dropout", "Dropout2D",
    "Dropout3D", "Embedding", "Flatten", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "Identity",
    "KLDivLoss", "L1Loss", "Layer", "LayerDict", "LayerList", "LayerNorm", "LeakyReLU", "Linear",
    "LogSigmoid", "LogSoftmax", "MSELoss", "MarginRankingLoss", "MaxPool1D", "MaxPool2D", "Maxout",
    "MultiHeadAttention", "NLLLoss", "PReLU", "Pad1D", "Pad2D", "Pad3D", "PairwiseDistance",
    "ParameterList", "PixelShuffle", "ReLU", "ReLU6", "Sequential", "Sigmoid", "SmoothL1Loss", "Softmax",
    "Softplus", "Softshrink", "Softsign", "Swish", "Tanh", "Tanhshrink", "ThresholdedReLU", "Transformer",
    "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer",
    "functional", "initializer",
]  # fmt: skip
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
