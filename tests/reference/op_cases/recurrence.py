"""LSTM and GRU over sequences, some of them empty.

Of 8 (or 16, 24, ...) cells Paddle's gradients are wrong: they disagree with differences of what it computes itself.
So are they with initial states where a sequence is empty.
"""

from tables import case, normal, offsets

LENGTHS = ([2, 3], [1, 0, 4], [3, 3, 1, 2], [0, 5])
KINDS = ("sigmoid", "tanh", "identity", "relu")


def sequences(p, gates, width, has_states):
    lengths = p.of(*LENGTHS)
    if has_states:
        lengths = [length or 2 for length in lengths]
    x = normal([sum(lengths), gates * width], p.any("float32", "float32", "float64"))
    return {"Input": x, "Input@LOD": offsets(lengths)}, len(lengths), x[1]


def lstm_like(p, width, fed_back, with_clips):
    has_states = p.of(False, True, True)
    inputs, count, dtype = sequences(p, 4, width, has_states)
    peepholes = p.of(True, False)
    attrs = {"use_peepholes": peepholes, "is_reverse": p.of(False, True)}
    inputs["Weight"] = normal([fed_back, 4 * width], dtype)
    inputs["Bias"] = normal([1, (7 if peepholes else 4) * width], dtype)
    if has_states:
        inputs["H0"], inputs["C0"] = normal([count, fed_back], dtype), normal([count, width], dtype)
    for name in ("gate", "cell", "candidate"):
        kinds = ("sigmoid", "tanh") if name == "gate" else KINDS
        attrs["%s_activation" % name] = p.any(*kinds)
    if with_clips:
        inputs["ProjWeight"] = normal([width, fed_back], dtype)
        # Paddle applies cell_activation in its place, unless it is identity
        attrs["proj_activation"] = p.any(attrs["cell_activation"], "identity")
        attrs["proj_clip"], attrs["cell_clip"] = p.of(0.0, 0.3), p.of(0.0, 0.0, 0.5)
    return inputs, attrs


@case("lstm", 10)
def lstm(p):
    width = p.any(2, 3, 5)
    return lstm_like(p, width, width, False)


@case("lstmp", 12)
def lstmp(p):
    return lstm_like(p, p.any(2, 5), p.any(3, 4), True)


@case("gru", 12)
def gru(p):
    width = p.any(2, 3, 5)
    has_states = p.of(False, True)
    inputs, count, dtype = sequences(p, 3, width, has_states)
    inputs["Weight"] = normal([width, 3 * width], dtype)
    if p.of(True, True, False):
        inputs["Bias"] = normal([1, 3 * width], dtype)
    if has_states:
        inputs["H0"] = normal([count, width], dtype)
    attrs = {"origin_mode": p.of(False, True), "is_reverse": p.of(False, False, True)}
    return inputs, dict(attrs, activation=p.any(*KINDS), gate_activation=p.any("sigmoid", "tanh"))
