"""What tables of cases share: how inputs are described, and what the generator must know of an op.

A table is a module beside this one, and its record the JSON file of its name. It gives each op a function from
a draw to inputs and attributes::

    @case("relu tanh", 6)
    def one(p):
        return {"X": normal(p.any(*SHAPES), p.of(*ALL))}, {}

An input is [shape, dtype, how it is drawn]; attributes are those off their defaults. Attributes that only
say how fast Paddle computes (use_cudnn and its like) are left out.
"""

FP16, FP32, FP64, INT32, INT64, BOOL = 4, 5, 6, 2, 3, 0
NUMBERS = {"float32": FP32, "float64": FP64, "int32": INT32, "int64": INT64, "bool": BOOL}
FLOATS = ("float32", "float32", "float64")
ALL = ("float32", "int64", "float64", "int32")
SHAPES = ([3, 4], [5], [2, 3, 2], [2, 1, 3, 2])

CASES = {}  # op type -> (how many cases, function)
IN_PLACE = {
    "batch_norm": {"MeanOut": "Mean", "VarianceOut": "Variance"},
    "sample_logits": {
        "Samples": "CustomizedSamples",
        "Probabilities": "CustomizedProbabilities",
    },
    "rmsprop": {f"{slot}Out": slot for slot in ("Param", "Moment", "MeanSquare", "MeanGrad")},
}
NO_GRADIENT = set()
OUTPUT_COUNT = {
    "split": lambda attrs, arrays: len(attrs.get("sections", ())) or attrs["num"],
    "unstack": lambda attrs, arrays: attrs["num"],
}


def case(names, count):
    def register(function):
        for name in names.split():
            CASES[name] = (count, function)
        return function

    return register


def normal(shape, dtype="float32"):
    whole = dtype.startswith("int")
    return [shape, dtype, "integers", -9, 9] if whole else [shape, dtype, "normal"]


def positive(shape, dtype="float32"):
    whole = dtype.startswith("int")
    return [shape, dtype, "integers", 1, 9] if whole else [shape, dtype, "uniform", 0.2, 0.9]


def distinct(shape, dtype="float32"):
    return [shape, dtype, "distinct"]


def integers(shape, high, dtype="int64", low=0):
    return [shape, dtype, "integers", low, high]


def values(numbers, dtype="int32"):
    return [[len(numbers)], dtype, "values", numbers]


def scalars(numbers, dtype="int32"):
    """A list of variables with one element each, as layers make them of a list of numbers and Variables."""
    return [[[1], dtype, "values", [number]] for number in numbers]


def offsets(lengths):
    """A level of sequences, for a slot X@LOD."""
    ends = [0]
    for length in lengths:
        ends.append(ends[-1] + length)
    return values(ends, "int64")


RATES = (0.9, 0.5, 0.99)
SMALL = (1e-6, 1e-3, 1e-2)


def update(name, extra, **options):
    """Cases of an update that reads Param, Grad and the slots in ``extra``."""

    def function(p):
        shape, dtype = p.any([3, 4], [5]), p.any(*FLOATS)
        inputs = {"Param": normal(shape, dtype), "Grad": normal(shape, dtype)}
        for slot in extra.split():
            one = slot in ("LearningRate", "Beta1Pow", "Beta2Pow")
            inputs[slot] = positive([1] if one else shape, dtype)
        if "LinearAccumulator" in inputs:
            inputs["LinearAccumulator"] = normal(shape, dtype)
        if "MeanGrad" in inputs:  # its square is no more than the mean square
            inputs["MeanGrad"] = [shape, dtype, "uniform", 0.0, 0.4]
        attrs = {key: p.of(*many) for key, many in options.items()}
        if name == "adam":
            for slot in ("Beta1Tensor", "Beta2Tensor"):
                if p.any(0, 0, 1):
                    inputs[slot] = [[1], "float32", "values", [0.75]]
        return inputs, attrs

    CASES[name] = (8, function)
    NO_GRADIENT.add(name)
