"""Cases of hashes of rows."""

from tables import case, integers


@case("hash", 10)
def hash_(p):
    shape = [p.any(1, 4), p.of(1, 2, 3, 4, 7, 9, 16)]
    x = integers(shape, p.any(9, 2**30), p.of("int64", "int32"), -5)
    return {"X": x}, {"num_hash": p.any(1, 4), "mod_by": p.any(7, 100000, 2**40)}
