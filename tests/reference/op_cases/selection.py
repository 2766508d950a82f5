"""Cases of ops whose results have as many rows as elements differ, or are not zero."""

from tables import INT32, INT64, case, integers


@case("where_index", 8)
def where_index(p):
    shape, kind = p.of([7], [3, 4], [2, 3, 2]), p.of("bool", "int64", "float32")
    return {"Condition": integers(shape, 2, kind)}, {}


@case("unique", 6)
def unique(p):
    return {"X": integers([p.of(1, 5, 9)], 4, p.of("int64", "int32", "float32"))}, {
        "dtype": p.of(INT32, INT64)
    }


@case("unique_with_counts", 6)
def unique_with_counts(p):
    return {"X": integers([p.of(1, 5, 9)], 4, p.of("int64", "int32", "float32"))}, {
        "dtype": p.of(INT32, INT64)
    }
