"""A contender of ``benchmarks/gpu.py``: PyTorch on one GPU; eager, compiled, or compiled with CUDA graphs."""

import contextlib
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.models import MODELS
from benchmarks.sizes import weights
from benchmarks.workers.gpu_serve import Settings, Steps, parted, serve_steps
from benchmarks.workers.torch_nets import NETS, conv_bn
from benchmarks.workers.torch_steps import CASES, classes

TOLD = Settings()
DEVICE = torch.device("cuda" if TOLD.on_gpu else "cpu")

MODES = {"compiled": "default", "graphs": "reduce-overhead"}


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut; the stride is the 3x3 convolution's."""

    def __init__(self, wide, width, stride):
        super().__init__()
        self.parts = nn.ModuleList(
            [
                conv_bn(wide, width, 1, 1),
                conv_bn(width, width, 3, stride),
                conv_bn(width, 4 * width, 1, 1, relu=False),
            ]
        )
        same = stride == 1 and wide == 4 * width
        self.skip = None if same else conv_bn(wide, 4 * width, 1, stride, relu=False)

    def forward(self, x):
        """Return ReLU of the sum."""
        inner = x
        for part in self.parts:
            inner = part(inner)
        return functional.relu(inner + (x if self.skip is None else self.skip(x)), inplace=True)


class ResNet50(nn.Module):
    """Bottlenecks with the shared weights."""

    def __init__(self, size):
        super().__init__()
        self.stem = conv_bn(3, size.stem, 7, 2)
        self.blocks, wide = nn.ModuleDict(), size.stem
        for stage, (width, count) in enumerate(size.blocks):
            for block in range(count):
                stride = 2 if stage and not block else 1
                self.blocks["{}_{}".format(stage, block)] = Bottleneck(wide, width, stride)
                wide = 4 * width
        self.head = nn.Linear(wide, size.classes)

    def take(self, weights):
        """Take the shared weights."""
        fill(self.stem[0].weight, weights["stem"])
        for key, block in self.blocks.items():
            name = key.replace("_", ".")
            for k, part in enumerate(block.parts):
                fill(part[0].weight, weights["{}.{}".format(name, k + 1)])
            if block.skip is not None:
                fill(block.skip[0].weight, weights[name + ".0"])
        fill(self.head.weight, weights["head"].T)
        nn.init.zeros_(self.head.bias)

    def forward(self, x):
        """Return the scores."""
        x = functional.max_pool2d(self.stem(x), 3, 2, 1)
        for block in self.blocks.values():
            x = block(x)
        return self.head(x.mean((2, 3)))


class Block(nn.Module):
    """A transformer layer, norms first."""

    def __init__(self, size):
        super().__init__()
        width = size.width
        self.heads = size.heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        """Return attention and feed-forward part beside their shortcuts."""
        rows, length, width = x.shape
        joint = self.joint(self.norms[0](x)).view(rows, length, 3, self.heads, -1)
        query, key, value = joint.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        hidden = functional.gelu(self.wide(self.norms[1](x)), approximate="tanh")
        return x + self.narrow(hidden)


class GPT2(nn.Module):
    """The first embedding is the last matrix, too."""

    def __init__(self, size):
        super().__init__()
        self.words = nn.Embedding(size.words, size.width)
        self.positions = nn.Parameter(torch.empty(size.length, size.width))
        self.layers = nn.ModuleList([Block(size) for _ in range(size.layers)])
        self.norm = nn.LayerNorm(size.width)

    def take(self, weights):
        """Take the shared weights."""
        fill(self.words.weight, weights["words_w"])
        fill(self.positions, weights["positions"])
        for k, layer in enumerate(self.layers):
            for part in ("joint", "out", "wide", "narrow"):
                linear = getattr(layer, part)
                fill(linear.weight, weights["layer{}.{}".format(k, part)].T)
                nn.init.zeros_(linear.bias)

    def forward(self, words):
        """Return scores for every position."""
        x = self.words(words) + self.positions
        for layer in self.layers:
            x = layer(x)
        return functional.linear(self.norm(x), self.words.weight)


def fill(parameter, value):
    """Give a parameter a value."""
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(value.copy()))


def large(name, precision):
    """Return a large model, its batches on the host, its optimizer and its arithmetic."""
    size = TOLD.size(name)
    net = (ResNet50 if name == "resnet50" else GPT2)(size)
    net.take(weights(name, size))
    net = net.to(DEVICE)
    batches = [
        [torch.from_numpy(array) for array in batch.values()] for batch in TOLD.batches(name)
    ]
    fused = {"fused": True} if TOLD.on_gpu else {}
    if name == "resnet50":
        if precision != "float32":
            net = net.to(memory_format=torch.channels_last)
        rule = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=5e-5, **fused)
    else:
        rule = torch.optim.AdamW(
            net.parameters(), 6e-4, betas=(0.9, 0.95), weight_decay=0.1, **fused
        )
    low = torch.autocast(DEVICE.type, torch.bfloat16)
    return net, batches, rule, low if precision == "bfloat16" else contextlib.nullcontext()


def small(name):
    """Return the same of a small net, for one of its two places."""
    torch.manual_seed(0)
    data, _, optimizers = CASES[name]
    net = NETS[name]().to(DEVICE)
    (rule,) = optimizers(net)
    return net, [list(data())], rule, contextlib.nullcontext()


def moved(array):
    """Return an array on the device."""
    return array.to(DEVICE, non_blocking=True)


def mapped(change, arrays):
    """Return lists of arrays with each of them changed."""
    nested = isinstance(arrays, (list, tuple))
    return [mapped(change, each) for each in arrays] if nested else change(arrays)


def memory():
    """Return the most bytes that were allocated."""
    return {"peak": torch.cuda.max_memory_allocated()} if TOLD.on_gpu else {}


def build(model):
    """Return the steps of a model."""
    name, precision = parted(model)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    if TOLD.on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    net, batches, optimizer, arithmetic = small(name) if name in MODELS else large(name, precision)
    criterion = CASES[name][1] if name in MODELS else classes
    if TOLD.on_gpu:
        batches = [mapped(torch.Tensor.pin_memory, batch) for batch in batches]
    forward = torch.compile(net, mode=MODES[TOLD.how]) if TOLD.how else net
    turn = iter(range(sys.maxsize))

    def begin():
        x, y = mapped(moved, batches[next(turn) % len(batches)])
        if name == "resnet50" and precision != "float32":
            x = x.contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad(set_to_none=True)
        if TOLD.how == "graphs":
            torch.compiler.cudagraph_mark_step_begin()
        with arithmetic:
            loss = criterion(forward(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Steps(begin, torch.Tensor.item, memory)


def about():
    """Return versions, and which GPU."""
    versions = {"python": sys.version.split()[0], "torch": torch.__version__}
    if TOLD.on_gpu:
        versions["GPU"] = torch.cuda.get_device_name()
        versions["cuDNN"] = str(torch.backends.cudnn.version())
    return versions


if __name__ == "__main__":
    serve_steps(about, build)
