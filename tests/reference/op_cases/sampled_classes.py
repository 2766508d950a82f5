"""Losses that look at few of many classes, where nothing is drawn."""

from tables import case, integers, normal, positive, values


@case("nce", 12)
def nce(p):
    classes, rows, width = 7, p.any(1, 4), p.any(2, 3)
    dtype = p.any("float32", "float64")
    sampler = p.of(0, 1, 2)
    negatives = p.any([0, 2], [3, 3, 6], [5])
    inputs = {
        "Input": normal([rows, width], dtype),
        "Label": integers([rows, p.any(1, 1, 2)], classes),
        "Weight": normal([classes, width], dtype),
    }
    if p.of(True, True, False):
        inputs["Bias"] = normal([classes, 1], dtype)
    if p.of(False, True):
        inputs["SampleWeight"] = positive([rows, 1], dtype)
    if sampler == 2:
        shares = [0.1, 0.2, 0.05, 0.25, 0.1, 0.1, 0.2]
        inputs["CustomDistProbs"] = values(shares, "float32")
        inputs["CustomDistAlias"] = values([-1] * 7)
        inputs["CustomDistAliasProbs"] = values([1.0] * 7, "float32")
    return inputs, {
        "num_total_classes": classes,
        "num_neg_samples": len(negatives),
        "custom_neg_classes": negatives,
        "sampler": sampler,
        "seed": p.any(0, 5),
    }


@case("sample_logits", 8)
def sample_logits(p):
    classes, rows, true, drawn = 8, p.any(1, 3), p.of(1, 2), p.any(2, 4)
    dtype = p.any("float32", "float64")
    return {
        "Logits": normal([rows, classes], dtype),
        "Labels": integers([rows, true], classes),
        "CustomizedSamples": integers([rows, true + drawn], classes),
        "CustomizedProbabilities": positive([rows, true + drawn], dtype),
    }, {
        "use_customized_samples": True,
        "remove_accidental_hits": p.of(True, False),
        "num_samples": drawn,
        "seed": 3,
    }
