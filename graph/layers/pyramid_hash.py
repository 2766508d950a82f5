"""Embeddings of all short runs of words, by hashes: see ``graph/ops/pyramid_hash.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...strategies.errors import InvalidType, InvalidValue
from ...strategies.types import VarType, to_var_type
from ..program.variable import Variable
from .arguments import Integers
from .helper import LayerHelper
from .param_attr import ParamAttr
from .shape import reshape


def search_pyramid_hash(
    input: Integers,
    num_emb: int,
    space_len: int,
    pyramid_layer: int,
    rand_len: int,
    drop_out_percent: float,
    is_training: int,
    use_filter: bool,
    white_list_len: int,
    black_list_len: int,
    seed: int,
    lr: float,
    param_attr: Any = None,
    param_attr_wl: Any = None,
    param_attr_bl: Any = None,
    name: str | None = None,
    distribute_update_vars: Sequence[str] | None = None,
    dtype: Any = "float32",
) -> Variable:
    """Return a row for each run of 2 to ``pyramid_layer`` words of a sequence: [terms, num_emb].

    The row is made of pieces of ``rand_len`` numbers from one table of ``space_len`` + ``rand_len``, each
    beginning where a hash of the run says. A sequence without runs has one row of zeros.

    The table is no parameter for optimizers: where the gradient reaches ``input``, whose ``stop_gradient`` must
    be False for it, ``lr`` times the gradient over all places is taken off the table in each step.

    Args:
        input: words, integers [N, 1], with one level of sequences.
        drop_out_percent: how likely a run is left out in training; without ``is_training`` rows are multiplied
            by it, as in Paddle.
        use_filter: leave out runs that are not in the white list, or are in the black list. The lists are
            parameters that hold the bytes of Bloom filters; one of 0 rows does not count.
        seed: other than 0: the same runs are left out in each step.
        distribute_update_vars: names of these parameters; matters to parameter servers only.

    Raises:
        InvalidType, InvalidValue: an argument does not fit.
    """
    layer = "search_pyramid_hash"
    if to_var_type(dtype) != VarType.FP32:
        raise InvalidType(f"{layer}: dtype must be float32, got {dtype!r}.")
    attrs: dict[str, Any] = {
        "num_emb": num_emb,
        "space_len": space_len,
        "pyramid_layer": pyramid_layer,
        "rand_len": rand_len,
        "is_training": is_training,
        "white_list_len": white_list_len,
        "black_list_len": black_list_len,
        "seed": seed,
        "drop_out_percent": drop_out_percent,
        "lr": lr,
        "use_filter": use_filter,
    }
    helper = LayerHelper(layer, name)
    inputs = {"X": input}
    for slot, attr, height in (
        ("W", param_attr, attrs["space_len"] + attrs["rand_len"]),
        ("WhiteList", param_attr_wl, attrs["white_list_len"]),
        ("BlackList", param_attr_bl, attrs["black_list_len"]),
    ):
        parameter = helper.create_parameter(attr, [height, 1], dtype, stop_gradient=True)
        if parameter is None:
            raise InvalidValue(f"{layer}: the parameter of {slot} cannot be left out.")
        inputs[slot] = parameter
    parameters = [ParamAttr.of(attr) for attr in (param_attr, param_attr_wl, param_attr_bl)]
    known = {attr.name for attr in parameters if attr is not None}
    wrong = [each for each in distribute_update_vars or () if each not in known]
    if wrong:
        raise InvalidValue(
            f"{layer}: distribute_update_vars names {wrong[0]!r}, no parameter of it."
        )
    attrs["distribute_update_vars"] = ",".join(distribute_update_vars or ())
    results = ("Out DropPos X_Temp_Out", "DropPos X_Temp_Out")
    return helper.layers("pyramid_hash", *results, **inputs, **attrs)[0]


def write_out(
    x: Variable, w: Variable, white: Variable, black: Variable, attrs: Mapping[str, Any]
) -> tuple[Variable, Variable, Variable]:
    """Append the ops that compute what ``pyramid_hash`` does, by its attributes; return its results.

    Sequences that have no terms look up the last row, which no hash leads to, and which counts as zeros.
    """
    helper = LayerHelper("pyramid_hash")
    layers, training = {"pyramid_layer": attrs["pyramid_layer"]}, bool(attrs["is_training"])
    lists = {"WhiteList": white, "BlackList": black}
    sizes = {"WhiteList": attrs["white_list_len"], "BlackList": attrs["black_list_len"]}
    used = {slot: lists[slot] for slot in lists if attrs["use_filter"] and sizes[slot]}
    rate = attrs["drop_out_percent"] if training else 0.0
    chances = {"drop_out_percent": rate, "seed": attrs["seed"]}
    terms = helper.layer("pyramid_terms", x=x, **used, **layers, **chances)
    some = {"Terms": terms} if used or rate else {}  # else their number follows from the sequences
    widths = {name: attrs[name] for name in ("num_emb", "rand_len", "space_len")}
    ids = helper.layer("pyramid_ids", x=x, **some, **layers, **widths)
    last = attrs["space_len"] + attrs["rand_len"] - 1
    table = {"padding_idx": last, "is_sparse": True}
    numbers = helper.layer("lookup_table_v2", w=w, ids=ids, **table)
    rows = reshape(numbers, [-1, attrs["num_emb"]])
    if not training:
        rows = helper.layer("scale", x=rows, scale=attrs["drop_out_percent"])
    types = {"in_dtype": int(x.dtype or VarType.INT32), "out_dtype": int(VarType.FP32)}
    words = helper.layer("cast", x=x, **types)
    return rows, terms, words
