"""Cases of ops that follow trees, of marks, and of fused products."""

from tables import FLOATS, NO_GRADIENT, NUMBERS, OUTPUT_COUNT, case, integers, normal

OUTPUT_COUNT["fusion_repeated_fc_relu"] = lambda attrs, arrays: len(arrays["W"]) - 1
NO_GRADIENT |= {"fc", "fusion_repeated_fc_relu", "fusion_squared_mat_sub", "similarity_focus"}


@case("tree_conv", 6)
def tree_conv(p):
    trees = p.of(
        [[1, 2], [1, 3], [1, 4], [3, 5], [3, 6], [6, 7]],
        [[1, 2], [2, 3], [2, 4], [2, 5], [4, 6], [0, 0]],
        [[1, 3], [3, 2], [0, 0], [0, 0], [0, 0], [0, 0]],
    )
    dtype = p.of(*FLOATS)
    chain = [[1, 2], [2, 3], [2, 4], [4, 5], [5, 6], [5, 7]]  # a smaller one would keep rows of the first
    edges = [[2, 6, 2], "int32", "values", trees + chain]
    inputs = {"NodesVector": normal([2, 7, 3], dtype), "EdgeSet": edges}
    return {**inputs, "Filter": normal([3, 3, 2, 2], dtype)}, {"max_depth": p.any(2, 3, 8)}


@case("gather_tree", 4)
def gather_tree(p):
    dtype = p.of("int64", "int32")
    return {"Ids": integers([5, 2, 3], 9, dtype), "Parents": integers([5, 2, 3], 3, dtype)}, {}


@case("tdm_child", 6)
def tdm_child(p):
    count, dtype = p.of(2, 3), p.of("int32", "int64")
    inputs = {"X": integers(p.of([5, 1], [2, 3], [4]), 9, p.of("int64", "int32"))}
    inputs["TreeInfo"] = integers([9, 3 + count], p.of(9, 3), dtype)
    return inputs, {"child_nums": count, "dtype": NUMBERS[dtype]}


@case("hierarchical_sigmoid", 10)
def hierarchical_sigmoid(p):
    classes, dtype, custom = p.any(2, 5, 6, 8), p.of(*FLOATS), p.of(False, False, True)
    rows = classes if custom else classes - 1
    inputs = {"X": normal([4, 3], dtype), "W": normal([rows, 3], dtype)}
    inputs["Label"] = integers([4, 1], classes)
    if p.any(True, False):
        inputs["Bias"] = normal([rows, 1], dtype)
    if custom:
        table = [[0, 1, -1], [1, 0, 1], [0, -1, -1], [1, -1, -1]]
        inputs["PathTable"] = [[4, 3], "int64", "values", table]
        turns = [[0, 1, -1], [1, 1, 0], [1, -1, -1], [0, -1, -1]]
        inputs["PathCode"] = [[4, 3], "int64", "values", turns]
    return inputs, {"num_classes": classes}


@case("similarity_focus", 6)
def similarity_focus(p):
    return {"X": normal([2, 3, 4, 3], p.of(*FLOATS))}, {"axis": p.of(1, 2, 3), "indexes": p.any([0], [2, 1])}


@case("cvm", 4)
def cvm(p):
    dtype = p.any(*FLOATS)
    counts = [[3, 2], dtype, "uniform", 0.0, 9.0]
    return {"X": [[3, 5], dtype, "uniform", 0.0, 9.0], "CVM": counts}, {"use_cvm": p.of(True, False)}


@case("fc", 6)
def fc(p):
    columns, dtype = p.of(1, 2), p.any(*FLOATS)
    w = normal([12 if columns == 1 else 4, 5], dtype)
    inputs = {"Input": normal([2, 3, 4], dtype), "W": w}
    if p.any(True, False):
        inputs["Bias"] = normal([1, 5], dtype)
    return inputs, {"in_num_col_dims": columns, "activation_type": p.any("", "relu")}


@case("fusion_repeated_fc_relu", 2)
def fusion_repeated_fc_relu(p):
    ws = [normal([4, 5]), normal([5, 3]), normal([3, 2])]
    return {"X": normal([3, 4]), "W": ws, "Bias": [normal([1, 5]), normal([1, 3]), normal([1, 2])]}, {}


@case("fusion_squared_mat_sub", 4)
def fusion_squared_mat_sub(p):
    return {"X": normal([3, 4]), "Y": normal([4, 2])}, {"scalar": p.of(1.0, 0.5)}


@case("tdm_sampler", 6)
def tdm_sampler(p):
    kind, positive = p.of("int32", "int64"), p.of(True, False)
    travel = [[1, 3], [1, 4], [2, 5], [2, 0]]
    inputs = {"X": integers(p.any([5, 1], [3]), 4, p.any("int32", "int64"))}
    inputs["Travel"] = [[4, 2], kind, "values", travel]
    inputs["Layer"] = [[6, 1], kind, "values", [[1], [2], [3], [4], [5], [6]]]
    attrs = {"neg_samples_num_list": p.any([1, 3], [0, 2], [1, 1]), "layer_offset_lod": [0, 2, 6]}
    attrs["output_positive"] = positive
    return inputs, {**attrs, "seed": p.any(0, 3), "dtype": NUMBERS[p.any("int32", "int64")]}
