"""Cases of steps of recurrent nets, and of masks."""

from tables import *  # noqa: F403


@case("sequence_mask", 8)
def sequence_mask(p):
    inputs = {"X": integers(p.of([4], [2, 3], [3, 1]), 7, p.any("int64", "int32"))}
    attrs = {"maxlen": p.of(3, 6), "out_dtype": p.of(FP32, INT64, INT32, FP64)}
    if p.any(0, 0, 1):
        inputs["MaxLenTensor"] = values([4])
        attrs.pop("maxlen")
    return inputs, attrs


@case("lstm_unit", 6)
def lstm_unit(p):
    n, d, dtype = p.of(1, 3), p.of(1, 4, 5), p.any("float32", "float64")
    inputs = {"X": normal([n, 4 * d], dtype), "C_prev": normal([n, d], dtype)}
    return inputs, {"forget_bias": p.of(0.0, 1.0, -0.5)}


@case("gru_unit", 12)
def gru_unit(p):
    n, d, dtype = p.any(1, 3), p.any(1, 4, 5), p.any("float32", "float64")
    inputs = {
        "Input": normal([n, 3 * d], dtype),
        "HiddenPrev": normal([n, d], dtype),
        "Weight": normal([d, 3 * d], dtype),
    }
    if p.of(True, False):
        inputs["Bias"] = normal([1, 3 * d], dtype)
    attrs = {"activation": p.of(2, 0, 1, 3), "gate_activation": p.any(1, 0, 2)}
    return inputs, dict(attrs, origin_mode=p.of(False, True))
