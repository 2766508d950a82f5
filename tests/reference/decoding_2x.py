"""Beam search as ``paddle.nn`` of 2.x has it: ids, scores, lengths of Paddle 3.3.1, which Rowlock is to have.

Run with a Python that has paddlepaddle==3.3.1 to make decoding_2x.json:  python decoding_2x.py
There the nets run imperatively: what 3.3.1 makes of ``dynamic_decode`` in a static program does not build.
"""

import os
import sys

import numpy as np

WIDTH, WORDS, START, END = 6, 9, 0, 1
CASES = {
    "gru": ("GRU", 3, {}),
    "lstm": ("LSTM", 2, {}),
    "time major": ("GRU", 2, {"output_time_major": True}),
    "imputed": ("GRU", 3, {"impute_finished": True}),
    "test": ("LSTM", 4, {"is_test": True}),
}


def first():
    """The states that three sources begin with."""
    return np.random.RandomState(3).uniform(-1, 1, (3, WIDTH)).astype("float32")


def initial(number, shape):
    """Values of the parameter that was created as the so many-th."""
    return np.random.RandomState(number).uniform(-1.5, 1.5, shape).astype("float32")


def decoded(nn, name, states):
    """Return layers in the order of their parameters, and what is decoded of ``states``."""
    kind, beams, options = CASES[name]
    cell = getattr(nn, kind + "Cell")(WIDTH, WIDTH)
    embedding, output = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)

    def decode():
        decoder = nn.BeamSearchDecoder(cell, START, END, beams, embedding, output)
        inits = states if kind == "GRU" else [states, states * 0.5]
        words, last, lengths = nn.dynamic_decode(
            decoder, inits=inits, max_step_num=5, return_length=True, **options
        )
        return [words, last.log_probs, last.finished, last.lengths, lengths]

    return [cell, embedding, output], decode


def main():
    import paddle

    record = {}
    for name in CASES:
        layers, decode = decoded(paddle.nn, name, paddle.to_tensor(first()))
        for number, parameter in enumerate(p for layer in layers for p in layer.parameters()):
            parameter.set_value(initial(number, parameter.shape))
        results = [np.array(value.numpy()) for value in decode()]
        record[name] = [[list(v.shape), v.astype("float64").ravel().tolist()] for v in results]
    import compact_json

    path = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "decoding_2x.json")
    compact_json.write(path, record, 2)


if __name__ == "__main__":
    main()
