"""The programs of ``benchmarks/sequence_models.py`` for PyTorch: packed sequences, sparse embeddings.

Each process takes its half of every batch, as tensors that are made once.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import (
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
)

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.sequence_models import FIELDS, LSTM, PAIRS, TEXT, Sentences, batches
from benchmarks.workers.torch_nets import WordWindows


def part(value, rank):
    """Return one half of a value: a tensor, or a list of tensors of words."""
    if not isinstance(value, Sentences):
        return torch.from_numpy(np.array_split(value, 2)[rank])
    texts = torch.from_numpy(value.words).split([int(length) for length in value.lengths])
    half = len(texts) // 2
    return texts[half:] if rank else texts[:half]


def parts(name, rank):
    """Return a process's parts of the batches of a program."""
    return [
        {key: part(value, rank) for key, value in batch.items()}
        for batch in batches(name, np.random.RandomState(1))
    ]


def rows_of_words(rank):
    """Return batches of rows of words, and classes."""
    return [(each["words"], each["label"][:, 0]) for each in parts("text_cnn_sparse", rank)]


def clicks(rank):
    """Return batches of ids and dense numbers, and clicks."""
    return [
        ((each["ids"], each["dense"]), each["label"][:, 0]) for each in parts("click_through", rank)
    ]


def backwards(packed):
    """Return where each word of packed sentences is in the sentences read backwards."""
    places, lengths = pad_packed_sequence(packed._replace(data=torch.arange(len(packed.data))))
    texts = [places[:length, k].flip(0) for k, length in enumerate(lengths)]
    return pack_sequence(texts, enforce_sorted=False).data


def texts(rank):
    """Return pairs of packed sentences with their order backwards, and classes."""
    pairs = []
    for each in parts("stacked_lstm", rank):
        words = pack_sequence(each["words"], enforce_sorted=False)
        pairs.append(((words, backwards(words)), each["label"][:, 0]))
    return pairs


def pairs(rank):
    """Return pairs of packed sentences, padded translations with their lengths, and the words that follow."""
    pairs = []
    for each in parts("translator", rank):
        source = pack_sequence(each["source"], enforce_sorted=False)
        lengths = torch.tensor([len(words) for words in each["target"]])
        following = pack_sequence(each["following"], enforce_sorted=False).data
        pairs.append(((source, pad_sequence(each["target"]), lengths), following))
    return pairs


class Reversed(nn.Module):
    """Two LSTMs, the second backwards, over embedded words; scores of the maxima over time."""

    def __init__(self, size):
        super().__init__()
        hidden = size["hidden"]
        self.words = nn.Embedding(size["words"], size["width"], sparse=True)
        self.forwards = nn.LSTM(size["width"], hidden)
        self.backwards = nn.LSTM(hidden, hidden)
        self.head = nn.Linear(hidden, 2)

    def forward(self, inputs):
        """Return the scores."""
        words, order = inputs
        states, _ = self.forwards(words._replace(data=self.words(words.data)))
        states, _ = self.backwards(states._replace(data=states.data[order]))
        states, _ = pad_packed_sequence(states, padding_value=float("-inf"))
        return self.head(states.amax(0))


class Clicks(nn.Module):
    """Rows of one table beside dense numbers, and three layers."""

    def __init__(self, size):
        super().__init__()
        wide, hidden = size["count"] * size["width"] + size["dense"], size["hidden"]
        self.rows = nn.Embedding(size["table"], size["width"], sparse=True)
        parts = []
        for _ in range(3):
            parts += [nn.Linear(wide, hidden), nn.ReLU()]
            wide = hidden
        self.layers = nn.Sequential(*parts, nn.Linear(hidden, 2))

    def forward(self, inputs):
        """Return the scores."""
        ids, dense = inputs
        return self.layers(torch.cat([self.rows(ids).flatten(1), dense], 1))


class Translator(nn.Module):
    """A GRU both ways, and a GRU that attends to its states, step by step."""

    def __init__(self, size):
        super().__init__()
        words, width = size["words"], size["width"]
        self.source, self.target = nn.Embedding(words, width), nn.Embedding(words, width)
        self.reader = nn.GRU(width, width, bidirectional=True)
        self.project = nn.Linear(2 * width, width, bias=False)
        self.first = nn.Linear(width, width)
        self.ask = nn.Linear(width, width, bias=False)
        self.fit = nn.Linear(2 * width, 1, bias=False)
        self.cell = nn.GRUCell(3 * width, width)
        self.head = nn.Linear(width, words)

    def attended(self, state, memory, projected, outside):
        """Return the mean of a memory, weighted by how each of its rows suits the state."""
        query = self.ask(state).expand_as(projected)
        fit = torch.tanh(self.fit(torch.cat([projected, query], 2)))
        return (fit.masked_fill(outside, float("-inf")).softmax(0) * memory).sum(0)

    def forward(self, inputs):
        """Return scores for each word of the translations, packed."""
        source, target, sizes = inputs
        states, last = self.reader(source._replace(data=self.source(source.data)))
        projected, _ = pad_packed_sequence(states._replace(data=self.project(states.data)))
        memory, lengths = pad_packed_sequence(states)
        outside = (torch.arange(len(memory))[:, None] >= lengths)[:, :, None]
        state, states = torch.tanh(self.first(last[1])), []
        for word in self.target(target):
            context = self.attended(state, memory, projected, outside)
            state = self.cell(torch.cat([context, word], 1), state)
            states.append(state)
        packed = pack_padded_sequence(torch.stack(states), sizes, enforce_sorted=False)
        return self.head(packed.data)


SEQUENCE_NETS = {
    "text_cnn_sparse": lambda: WordWindows(TEXT, sparse=True),
    "stacked_lstm": lambda: Reversed(LSTM),
    "click_through": lambda: Clicks(FIELDS),
    "translator": lambda: Translator(PAIRS),
}
