"""Cases of the sums that averages of parameters are made of."""

from tables import FLOATS, IN_PLACE, NO_GRADIENT, case, integers, normal

SUMS = ("sum_1", "sum_2", "sum_3")
COUNTS = ("num_accumulates", "old_num_accumulates", "num_updates")
IN_PLACE["average_accumulates"] = {"out_" + name: "in_" + name for name in SUMS + COUNTS}
NO_GRADIENT.add("average_accumulates")


@case("average_accumulates", 8)
def average_accumulates(p):
    dtype, shape = p.of(*FLOATS), p.any([3, 4], [5])
    inputs = {"param": normal(shape, dtype)}
    inputs.update(("in_" + name, normal(shape, dtype)) for name in SUMS)
    inputs.update(("in_" + name, integers([1], 20, low=1)) for name in COUNTS)
    least = p.any(2, 5)
    window = {"min_average_window": least, "max_average_window": least + p.of(0, 4, 100)}
    return inputs, dict(window, average_window=p.of(0.6, 0.1, 2.0))
