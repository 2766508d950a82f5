"""Chains of tags and alignments of labels, of sequences and of padded batches."""

from tables import case, integers, normal, offsets, values


def emissions(p, tags):
    dtype = p.any("float32", "float64")
    inputs = {"Transition": normal([tags + 2, tags], dtype)}
    if p.of(False, True):
        steps, lengths = p.any(4, 5), p.of([2, 4], [1, 3, 4], [4])
        inputs["Emission"] = normal([len(lengths), steps, tags], dtype)
        inputs["Label"] = integers([len(lengths), steps], tags)
        inputs["Length"] = [[len(lengths), 1], "int64", "values", lengths]
        return inputs
    lengths = p.of([2, 3], [1, 0, 4], [6])
    inputs["Emission"] = normal([sum(lengths), tags], dtype)
    inputs["Label"] = integers([sum(lengths), 1], tags)
    inputs["Emission@LOD"] = inputs["Label@LOD"] = offsets(lengths)
    return inputs


@case("linear_chain_crf", 10)
def linear_chain_crf(p):
    return emissions(p, p.any(2, 3, 6)), {}


@case("crf_decoding", 10)
def crf_decoding(p):
    inputs = emissions(p, p.any(2, 3, 6))
    if p.any(False, True):
        del inputs["Label"]
        inputs.pop("Label@LOD", None)
    return inputs, {}


@case("warpctc", 12)
def warpctc(p):
    classes = p.any(3, 5)
    blank = p.of(0, classes - 1)
    low = 1 if blank == 0 else 0
    steps, labels = p.of(([5, 7], [2, 3]), ([4, 6, 3], [1, 0, 2]), ([3, 3], [3, 1]))
    attrs = {"blank": blank, "norm_by_times": p.of(False, True)}
    high = classes - 1 + low
    if p.any(False, True):
        most = max(steps)
        return {
            "Logits": normal([most, len(steps), classes]),
            "Label": integers([len(steps), 3], high, "int32", low),
            "LogitsLength": values(steps, "int64"),
            "LabelLength": values(labels, "int64"),
        }, attrs
    return {
        "Logits": normal([sum(steps), classes]),
        "Logits@LOD": offsets(steps),
        "Label": integers([sum(labels), 1], high, "int32", low),
        "Label@LOD": offsets(labels),
    }, attrs
