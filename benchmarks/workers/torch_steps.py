"""A contender: PyTorch's DistributedDataParallel over gloo, ``torch_steps.py [compiled]``; two processes."""

import itertools
import os
import socket
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn, optim
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.models import ENCODER, GPT, SIGNAL, TABLES, TEXT, UNET, WIDE_DEEP
from benchmarks.workers import torch_sequences as sequences
from benchmarks.workers.serve import serve, timed
from benchmarks.workers.torch_nets import NETS


def classes(scores, label):
    """Return the mean cross entropy over all positions."""
    return functional.cross_entropy(scores.flatten(0, -2), label.flatten())


def pixels(scores, label):
    """Return the mean cross entropy over all pixels."""
    return functional.cross_entropy(scores, label)


def adam(net):
    """Adam with the rate that all contenders use."""
    return [optim.Adam(net.parameters(), 1e-3)]


def lazy_adam(net):
    """Adam, of embeddings only for the rows that a step reads."""
    tables = {part.weight for part in net.modules() if isinstance(part, nn.Embedding)}
    others = [parameter for parameter in net.parameters() if parameter not in tables]
    return [optim.SparseAdam(list(tables), 1e-3), optim.Adam(others, 1e-3)]


def adagrad(net):
    """Adagrad with the rate that all contenders use."""
    return [optim.Adagrad(net.parameters(), 1e-2, eps=1e-6)]


def momentum(net):
    """SGD with momentum."""
    return [optim.SGD(net.parameters(), 1e-3, momentum=0.9)]


def images(rows, *shape):
    """Return random images and labels."""
    return torch.randn(rows, *shape), torch.randint(0, 10, (rows,))


def text(size, each):
    """Return random words, and a label for each of them or for each row."""
    rows, length = size["rows"] // 2, size["length"]
    label = torch.randint(0, size["words"], (rows, length)) if each else None
    words = torch.randint(0, size["words"], (rows, length))
    return words, label if each else torch.randint(0, 10, (rows,))


def categories():
    """Return random categories, numbers and clicks."""
    rows = WIDE_DEEP["rows"] // 2
    ids = [torch.randint(0, height, (rows,)) for height in TABLES]
    return (ids, torch.randn(rows, WIDE_DEEP["dense"])), torch.randint(0, 2, (rows, 1)).float()


def segments():
    """Return random images and labels of pixels."""
    rows, side = UNET["rows"] // 2, UNET["side"]
    return torch.randn(rows, 3, side, side), torch.randint(0, UNET["classes"], (rows, side, side))


def regression():
    """Return random rows and targets."""
    return torch.randn(16, 13), torch.randn(16, 1)


CASES = {  # data (of programs whose shapes are data: by rank, several batches), criterion and optimizers
    "fit": (regression, functional.mse_loss, lambda net: [optim.SGD(net.parameters(), 1e-3)]),
    "mlp": (lambda: images(64, 784), classes, adam),
    "lenet": (lambda: images(64, 1, 28, 28), classes, adam),
    "resnet18": (lambda: images(16, 3, 32, 32), classes, momentum),
    "mobilenet": (lambda: images(16, 3, 32, 32), classes, momentum),
    "text_cnn": (lambda: text(TEXT, False), classes, adam),
    "vgg": (lambda: images(16, 3, 32, 32), classes, momentum),
    "densenet": (lambda: images(16, 3, 32, 32), classes, momentum),
    "gpt": (lambda: text(GPT, True), classes, adam),
    "encoder": (lambda: text(ENCODER, False), classes, adam),
    "mixer": (lambda: images(16, 3, 32, 32), classes, adam),
    "wide_deep": (categories, functional.binary_cross_entropy_with_logits, adam),
    "unet": (segments, pixels, momentum),
    "convnext": (lambda: images(16, 3, 32, 32), classes, adam),
    "signals": (
        lambda: images(SIGNAL["rows"] // 2, 2, 1, SIGNAL["length"]),
        classes,
        momentum,
    ),
    "text_cnn_sparse": (sequences.rows_of_words, classes, lazy_adam),
    "stacked_lstm": (sequences.texts, classes, lazy_adam),
    "click_through": (sequences.clicks, classes, adagrad),
    "translator": (sequences.pairs, classes, adam),
}


def make(name, compiled):
    """Return a step of a model, which returns its loss."""
    torch.manual_seed(0)
    torch.compiler.reset()  # or nets of parts that were compiled before get code for shapes that vary
    data, criterion, optimizers = CASES[name]
    several = name in sequences.SEQUENCE_NETS
    net = sequences.SEQUENCE_NETS[name]() if several else NETS[name]()
    weights, updates = sum(each.numel() for each in net.parameters()), optimizers(net)
    model = DistributedDataParallel(torch.compile(net) if compiled else net)
    batches = itertools.cycle(data(dist.get_rank()) if several else [data()])

    def step():
        x, y = next(batches)
        for update in updates:
            update.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        for update in updates:
            update.step()
        return loss.item()

    step.weights = weights
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
            task = pipe.recv()
        except EOFError:
            return
        if isinstance(task, int):
            timed(step, task)
        else:
            step = None
            step = make(task, compiled)


def free_port():
    """Return a free port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


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
