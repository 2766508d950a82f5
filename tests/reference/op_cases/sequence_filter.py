"""Cases of ops that keep sequences by tags, or attend over sequences."""

from tables import NO_GRADIENT, case, integers, normal, offsets, values

NO_GRADIENT.add("attention_lstm")


@case("filter_by_instag", 8)
def filter_by_instag(p):
    lengths, tags = p.of([2, 1, 3], [4, 1, 1], [1, 5]), p.of([1, 2, 1], [2, 0, 3])
    tags = tags[: len(lengths)]
    is_lod = p.of(True, True, False)
    rows = sum(lengths) if is_lod else len(tags)
    inputs = {
        "Ins": normal([rows, 3], p.of("float32", "int64", "float64")),
        "Ins_tag": integers([sum(tags), 1], 4),
        "Ins_tag@LOD": offsets(tags),
        "Filter_tag": values(p.of([1], [0, 3], [9], [2, 1, 0]), "int64"),
    }
    if is_lod:
        inputs["Ins@LOD"] = offsets(lengths)
    return inputs, {"is_lod": is_lod, "out_val_if_empty": p.of(0, 3)}


@case("attention_lstm", 10)
def attention_lstm(p):
    lengths, width, cells = p.of([2, 3], [1, 0, 4], [3, 3, 1]), p.any(2, 3), p.of(1, 3, 8)
    dtype = p.any("float32", "float32", "float64")
    inputs = {
        "X": normal([sum(lengths), width], dtype),
        "X@LOD": offsets(lengths),
        "C0": normal([len(lengths), cells], dtype),
        "AttentionWeight": normal([width + cells, 1], dtype),
        "LSTMWeight": normal([cells + width, 4 * cells], dtype),
        "LSTMBias": normal([1, 4 * cells], dtype),
    }
    if p.of(True, False):
        inputs["H0"] = normal([len(lengths), cells], dtype)
    optional = ("AttentionBias", "AttentionScalar", "AttentionScalarBias")
    for slot in optional[: p.of(3, 0, 2, 1)]:
        inputs[slot] = normal([1, 1], dtype)
    attrs = {"gate_activation": p.any("sigmoid", "tanh")}
    attrs["cell_activation"] = p.any("tanh", "sigmoid", "relu")  # Paddle's identity reads old memory
    attrs["candidate_activation"] = p.any("tanh", "sigmoid", "identity", "relu")
    return inputs, attrs
