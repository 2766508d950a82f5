"""The nets of ``benchmarks/models.py`` as PyTorch's modules."""

import sys
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.models import (
    CONVNEXT_STAGES,
    ENCODER,
    GPT,
    GROWTH,
    MIXER,
    RESIDUAL_STAGES,
    SEPARABLE_STAGES,
    SIGNAL,
    SIGNAL_STAGES,
    TABLES,
    TEXT,
    UNET,
    VGG_STAGES,
    WIDE_DEEP,
)


def conv_bn(wide, channels, size, stride, relu=True, groups=1):
    """Return convolution, batch normalization and perhaps ReLU."""
    parts = [
        nn.Conv2d(wide, channels, size, stride, (size - 1) // 2, groups=groups, bias=False),
        nn.BatchNorm2d(channels),
    ]
    return nn.Sequential(*parts, *([nn.ReLU(inplace=True)] if relu else []))


class Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, wide, channels, stride):
        super().__init__()
        self.inner = nn.Sequential(
            conv_bn(wide, channels, 3, stride), conv_bn(channels, channels, 3, 1, relu=False)
        )
        same = stride == 1 and wide == channels
        self.skip = nn.Identity() if same else conv_bn(wide, channels, 1, stride, relu=False)

    def forward(self, x):
        """Return ReLU of the sum."""
        return functional.relu(self.inner(x) + self.skip(x), inplace=True)


class Layer(nn.Module):
    """One transformer layer, normalized before its parts (causal) or after them."""

    def __init__(self, size, causal):
        super().__init__()
        width = size["width"]
        self.heads, self.causal = size["heads"], causal
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    def attend(self, x):
        """Return self-attention."""
        rows, length, width = x.shape
        joint = self.joint(x).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = joint.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(rows, length, width))

    def widen(self, x):
        """Return the feed-forward part."""
        return self.narrow(functional.gelu(self.wide(x)))

    def forward(self, x):
        """Return both parts, each beside its shortcut."""
        first, second = self.norms
        if self.causal:
            x = x + self.attend(first(x))
            return x + self.widen(second(x))
        x = first(x + self.attend(x))
        return second(x + self.widen(x))


class Transformer(nn.Module):
    """Words in; scores for every position (causal) or for the mean of all out."""

    def __init__(self, size, causal, classes):
        super().__init__()
        self.words = nn.Embedding(size["words"], size["width"])
        self.positions = nn.Parameter(torch.zeros(size["length"], size["width"]))
        self.layers = nn.Sequential(*(Layer(size, causal) for _ in range(size["layers"])))
        self.norm = nn.LayerNorm(size["width"]) if causal else nn.Identity()
        self.head, self.causal = nn.Linear(size["width"], classes), causal

    def forward(self, words):
        """Return the scores."""
        x = self.norm(self.layers(self.words(words) + self.positions))
        return self.head(x) if self.causal else self.head(x.mean(1))


def residual_net():
    """ResNet-18 for small images."""
    parts, wide = [conv_bn(3, 64, 3, 1)], 64
    for channels, stride in RESIDUAL_STAGES:
        parts.append(Residual(wide, channels, stride))
        wide = channels
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, 10))


def separable_net():
    """Depthwise-separable blocks."""
    parts, wide = [conv_bn(3, 32, 3, 1)], 32
    for channels, stride in SEPARABLE_STAGES:
        parts += [conv_bn(wide, wide, 3, stride, groups=wide), conv_bn(wide, channels, 1, 1)]
        wide = channels
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, 10))


class WordWindows(nn.Module):
    """Convolutions over words, their maxima over time, and scores."""

    def __init__(self, size, sparse=False):
        super().__init__()
        self.words = nn.Embedding(size["words"], size["width"], sparse=sparse)
        self.windows = nn.ModuleList(
            nn.Conv2d(1, size["channels"], (length, size["width"])) for length in size["windows"]
        )
        self.head = nn.Linear(len(size["windows"]) * size["channels"], 10)

    def forward(self, words):
        """Return the scores."""
        x = self.words(words).unsqueeze(1)
        features = [functional.relu(conv(x)).amax((2, 3)) for conv in self.windows]
        return self.head(torch.cat(features, 1))


class Growing(nn.Module):
    """Batch normalization, ReLU and convolution, beside their input."""

    def __init__(self, wide):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(wide), nn.Conv2d(wide, GROWTH, 3, 1, 1, bias=False)

    def forward(self, x):
        """Return both."""
        return torch.cat([x, self.conv(functional.relu(self.norm(x)))], 1)


def growing_net():
    """Dense blocks."""
    parts, wide = [nn.Conv2d(3, 24, 3, 1, 1, bias=False)], 24
    for block in range(3):
        for _ in range(4):
            parts.append(Growing(wide))
            wide += GROWTH
        parts += [nn.BatchNorm2d(wide), nn.ReLU()]
        if block < 2:
            parts += [nn.Conv2d(wide, wide // 2, 1, bias=False), nn.AvgPool2d(2)]
            wide //= 2
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, 10))


def stacked_net():
    """VGG."""
    parts, wide = [], 3
    for channels, count in VGG_STAGES:
        for _ in range(count):
            parts += [nn.Conv2d(wide, channels, 3, 1, 1), nn.ReLU()]
            wide = channels
        parts.append(nn.MaxPool2d(2))
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(wide, 10))


def dense_net():
    """784-512-512-10."""
    return nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )


def small_conv_net():
    """Two convolutions with pooling."""
    parts = []
    for wide, channels in ((1, 20), (20, 50)):
        parts += [nn.Conv2d(wide, channels, 5), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(800, 10))


def widened(width):
    """Return two linear layers with GELU between them."""
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class MixerLayer(nn.Module):
    """Two layers across patches, then two across channels."""

    def __init__(self, size):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(size["width"]) for _ in range(2)])
        self.across, self.along = widened(size["tokens"]), widened(size["width"])

    def forward(self, x):
        """Return both parts, each beside its shortcut."""
        first, second = self.norms
        x = x + self.across(first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(second(x))


class Mixer(nn.Module):
    """An MLP-mixer."""

    def __init__(self, size):
        super().__init__()
        width, patch = size["width"], size["patch"]
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.layers = nn.Sequential(*(MixerLayer(size) for _ in range(size["layers"])))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        """Return the scores."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.layers(x)).mean(1))


class WideDeep(nn.Module):
    """Categories in tables of width 1, beside layers over wider ones."""

    def __init__(self, size):
        super().__init__()
        dense, width = size["dense"], size["width"]
        self.wide = nn.ModuleList(nn.Embedding(rows, 1) for rows in TABLES)
        self.deep = nn.ModuleList(nn.Embedding(rows, width) for rows in TABLES)
        parts, wide = [], len(TABLES) * width + dense
        for channels in size["layers"]:
            parts += [nn.Linear(wide, channels), nn.ReLU()]
            wide = channels
        self.layers = nn.Sequential(*parts, nn.Linear(wide, 1))
        self.linear = nn.Linear(dense, 1)

    def forward(self, inputs):
        """Return the score of each row."""
        ids, dense = inputs
        wide = sum(table(ids[k]) for k, table in enumerate(self.wide))
        deep = [table(ids[k]) for k, table in enumerate(self.deep)]
        return self.layers(torch.cat([*deep, dense], 1)) + self.linear(dense) + wide


def twice(wide, channels):
    """Return two convolutions of a U-Net."""
    return nn.Sequential(conv_bn(wide, channels, 3, 1), conv_bn(channels, channels, 3, 1))


class UNet(nn.Module):
    """Down by pooling, up by nearest neighbours."""

    def __init__(self, size):
        super().__init__()
        stages = size["stages"]
        below = (3, *stages)
        self.down = nn.ModuleList(twice(w, c) for w, c in zip(below, stages, strict=False))
        pairs = list(pairwise(stages))[::-1]
        self.up = nn.ModuleList(twice(upper + lower, upper) for upper, lower in pairs)
        self.head = nn.Conv2d(stages[0], size["classes"], 1)

    def forward(self, x):
        """Return the scores of each pixel."""
        skips = []
        for k, part in enumerate(self.down):
            x = part(functional.max_pool2d(x, 2) if k else x)
            skips.append(x)
        for part, skip in zip(self.up, skips[-2::-1], strict=True):
            x = part(torch.cat([skip, functional.interpolate(x, scale_factor=2)], 1))
        return self.head(x)


class ConvNextBlock(nn.Module):
    """A depthwise 7x7 convolution, a norm and two products over channels, beside their input."""

    def __init__(self, width):
        super().__init__()
        self.deep = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.along = nn.LayerNorm(width), widened(width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        """Return the sum."""
        inner = self.along(self.norm(self.deep(x).permute(0, 2, 3, 1))) * self.scale
        return x + inner.permute(0, 3, 1, 2)


def convnext_net():
    """ConvNeXt's blocks."""
    parts, wide = [], 3
    for channels, blocks in CONVNEXT_STAGES:
        parts.append(nn.Conv2d(wide, channels, 2, 2))
        parts += [ConvNextBlock(channels) for _ in range(blocks)]
        wide = channels
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(wide), nn.Linear(wide, 10)]
    return nn.Sequential(*parts, *head)


class SignalConv(nn.Module):
    """A convolution along a signal, batch normalization and ReLU; beside the input where that has its shape."""

    def __init__(self, wide, channels, stride, dilation):
        super().__init__()
        window = SIGNAL["window"]
        steps, lag = ((1, n) for n in (stride, dilation))
        padding = 0, (window - 1) // 2 * dilation
        self.conv = nn.Conv2d(wide, channels, (1, window), steps, padding, lag, bias=False)
        self.norm, self.same = nn.BatchNorm2d(channels), stride == 1

    def forward(self, x):
        """Return the result, or the sum."""
        inner = functional.relu(self.norm(self.conv(x)))
        return x + inner if self.same else inner


def signal_net():
    """Dilated convolutions along signals."""
    parts, wide = [], 2
    for channels, dilations in SIGNAL_STAGES:
        parts.append(SignalConv(wide, channels, 4, 1))
        parts += [SignalConv(channels, channels, 1, dilation) for dilation in dilations]
        wide = channels
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, 10))


NETS = {
    "fit": lambda: nn.Linear(13, 1),
    "mlp": dense_net,
    "lenet": small_conv_net,
    "resnet18": residual_net,
    "mobilenet": separable_net,
    "text_cnn": lambda: WordWindows(TEXT),
    "vgg": stacked_net,
    "densenet": growing_net,
    "gpt": lambda: Transformer(GPT, True, GPT["words"]),
    "encoder": lambda: Transformer(ENCODER, False, 10),
    "mixer": lambda: Mixer(MIXER),
    "wide_deep": lambda: WideDeep(WIDE_DEEP),
    "unet": lambda: UNet(UNET),
    "convnext": convnext_net,
    "signals": signal_net,
}
