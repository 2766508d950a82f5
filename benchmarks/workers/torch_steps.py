"""A contender: PyTorch's DistributedDataParallel over gloo, ``torch_steps.py [compiled]``; two processes."""

import os
import socket
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.models import ENCODER, GPT, RESIDUAL_STAGES, SEPARABLE_STAGES
from benchmarks.workers.serve import serve, timed


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


def classes(scores, label):
    """Return the mean cross entropy over all positions."""
    return functional.cross_entropy(scores.flatten(0, -2), label.flatten())


def adam(parameters):
    """Adam with the rate that all contenders use."""
    return torch.optim.Adam(parameters, 1e-3)


def momentum(parameters):
    """SGD with momentum."""
    return torch.optim.SGD(parameters, 1e-3, momentum=0.9)


def images(rows, *shape):
    """Return random images and labels."""
    return torch.randn(rows, *shape), torch.randint(0, 10, (rows,))


def text(size, each):
    """Return random words, and a label for each of them or for each row."""
    rows, length = size["rows"] // 2, size["length"]
    label = torch.randint(0, size["words"], (rows, length)) if each else None
    words = torch.randint(0, size["words"], (rows, length))
    return words, label if each else torch.randint(0, 10, (rows,))


def regression():
    """Return random rows and targets."""
    return torch.randn(16, 13), torch.randn(16, 1)


MODELS = {
    "fit": (
        lambda: nn.Linear(13, 1),
        regression,
        functional.mse_loss,
        lambda p: torch.optim.SGD(p, 1e-3),
    ),
    "mlp": (dense_net, lambda: images(64, 784), classes, adam),
    "lenet": (small_conv_net, lambda: images(64, 1, 28, 28), classes, adam),
    "resnet18": (residual_net, lambda: images(16, 3, 32, 32), classes, momentum),
    "mobilenet": (separable_net, lambda: images(16, 3, 32, 32), classes, momentum),
    "gpt": (lambda: Transformer(GPT, True, GPT["words"]), lambda: text(GPT, True), classes, adam),
    "encoder": (
        lambda: Transformer(ENCODER, False, 10),
        lambda: text(ENCODER, False),
        classes,
        adam,
    ),
}


def make(name, compiled):
    """Return a step of a model, which returns its loss."""
    torch.manual_seed(0)
    net, data, criterion, optimizer = MODELS[name]
    model = net()
    model = DistributedDataParallel(torch.compile(model) if compiled else model)
    updates, (x, y) = optimizer(model.parameters()), data()

    def step():
        updates.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        updates.step()
        return loss.item()

    return step


def join(rank, port):
    """Enter the group of two processes."""
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)


def follow(rank, port, compiled, pipe):
    """Do what the first process does, until it ends."""
    join(1, port)
    step = None
    while True:
        try:
            told = pipe.recv()
        except EOFError:
            return
        if isinstance(told, int):
            timed(step, told)
        else:
            step = None
            step = make(told, compiled)


def free_port():
    """Return a port that nobody uses."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def run():
    """Serve as the first of two processes."""
    compiled, port = "compiled" in sys.argv[1:], free_port()
    mine, theirs = mp.get_context("spawn").Pipe()
    mp.spawn(follow, (port, compiled, theirs), nprocs=1, join=False, daemon=True)
    join(0, port)

    def build(model):
        mine.send(model)
        return make(model, compiled)

    def both(step, count):
        mine.send(count)
        return timed(step, count)

    serve(lambda: {"python": sys.version.split()[0], "torch": torch.__version__}, build, both)


if __name__ == "__main__":
    run()
