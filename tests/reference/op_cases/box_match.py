"""Cases of matching boxes with objects."""

from tables import FLOATS, NO_GRADIENT, case, normal, offsets, values

NO_GRADIENT |= {"box_clip", "bipartite_match", "target_assign", "mine_hard_examples"}


@case("box_clip", 6)
def box_clip(p):
    dtype, lengths, shape = p.any(*FLOATS), p.any([2, 1], [0, 3]), p.of([3, 4], [3, 2, 4])
    sizes = [30.0, 20.0, p.any(1.0, 1.5), 41.0, 61.0, 2.0]
    return {
        "Input": [shape, dtype, "uniform", -9.0, 60.0],
        "Input@LOD": offsets(lengths),
        "ImInfo": [[2, 3], dtype, "values", sizes],
    }, {}


@case("bipartite_match", 12)
def bipartite_match(p):
    lengths = p.any([2, 3], [4, 1], [1, 1, 3])
    inputs = {"DistMat": [[5, p.any(2, 4, 30)], p.any(*FLOATS), "uniform", 0.0, 1.0]}
    if p.of(True, True, False):
        inputs["DistMat@LOD"] = offsets(lengths)
    return inputs, {
        "match_type": p.of("bipartite", "per_prediction"),
        "dist_threshold": p.any(0.5, 0.9),
    }


@case("target_assign", 8)
def target_assign(p):
    match, with_none = values([0, -1, 1, -1, -1, 2, 0, 0], "int32"), p.of(True, False)
    width = 1 if with_none else p.any(1, 4)  # Paddle gives those without an object other weights, in wider rows
    inputs = {
        "X": normal([5, p.of(4, 1), width], p.any("float32", "int32")),
        "X@LOD": offsets([2, 3]),
        "MatchIndices": [[2, 4], *match[1:]],
    }
    if with_none:
        inputs["NegIndices"] = [[3, 1], "int32", "values", [1, 3, 0]]
        inputs["NegIndices@LOD"] = offsets([2, 1])
    return inputs, {"mismatch_value": p.any(0, 7)}


@case("mine_hard_examples", 12)
def mine_hard_examples(p):
    hard = p.of(False, True)
    match = [int(v) for v in p.rng.randint(-3, 2, 12).clip(-1)]
    inputs = {
        "ClsLoss": [[2, 6], "float32", "uniform", 0.0, 1.0],
        "MatchIndices": [[2, 6], "int32", "values", match],
        "MatchDist": [[2, 6], "float32", "uniform", 0.0, 0.8],
    }
    if hard:
        inputs["LocLoss"] = [[2, 6], "float32", "uniform", 0.0, 1.0]
    return inputs, {
        "neg_pos_ratio": p.any(1.0, 3.0, 0.5),
        "neg_dist_threshold": p.any(0.5, 0.3),
        "sample_size": p.any(2, 4),
        "mining_type": "hard_example" if hard else "max_negative",
    }
