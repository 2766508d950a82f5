"""float32 functions of one element as source for compiled loops, free of branches so that loops become vectors.

Each reduces its argument to a short interval and evaluates a polynomial there. The coefficients were fitted
for the least largest relative error (least squares, reweighted towards the largest error). Errors are a few
units in the last place; infinities, nan, overflow and denormals come out as NumPy's do.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

from ...graph.ops.loss import LEAST_SHIFT


def _horner(variable: str, *coefficients: str) -> str:
    """Return the source of a polynomial, highest power first, each step rounded once."""
    text = f"np.float32({coefficients[0]})"
    for c in coefficients[1:]:
        text = f"fma({text}, {variable}, np.float32({c}))"
    return text


_EXP = _horner(
    "r", "1.381314592e-03", "8.369419724e-03", "4.166845605e-02", "1.666651517e-01", "0.5"
)
_EXPM1 = _horner(
    "x", "2.497025162e-05", "1.997402142e-04", "1.388854347e-03", "8.333140984e-03", "4.166666791e-02",
    "1.666666716e-01", "0.5",
)  # fmt: skip
_TANH = _horner(
    "u",
    "-5.660771392e-03",
    "2.060198970e-02",
    "-5.372922495e-02",
    "1.333132833e-01",
    "-3.333327770e-01",
)
_ERF = _horner(
    "u", "-5.892716581e-04", "4.974318203e-03", "-2.675417438e-02", "1.128149033e-01", "-3.761246502e-01",
    "1.283791512e-01",
)  # fmt: skip
_ERFCX = _horner(
    "c", "-4.830577236e-04", "7.165708113e-03", "-4.698890820e-02", "1.809282750e-01", "-4.593072832e-01",
    "8.192772269e-01", "-1.062227964e+00", "9.892194867e-01",
)  # fmt: skip
_LOG = _horner(
    "f", "-7.859525084e-02", "1.288162619e-01", "-1.312877685e-01", "1.418119669e-01", "-1.662455201e-01",
    "2.000228614e-01", "-2.500081062e-01", "3.333331645e-01",
)  # fmt: skip

_ASIN = _horner(
    "z", "4.221859580e-02", "2.414758445e-02", "4.547710227e-02", "7.495241740e-02", "1.666675393e-01"
)  # fmt: skip
_ATAN = _horner(
    "z", "-6.083441609e-02", "1.059599669e-01", "-1.424384804e-01", "1.999848940e-01", "-3.333331550e-01"
)  # fmt: skip


def _double(variable: str, *coefficients: float) -> str:
    """Return the source of a polynomial in double precision, highest power first."""
    text = f"{coefficients[0]}"
    for c in coefficients[1:]:
        text = f"fma({text}, {variable}, {c})"
    return text


_ARTANH = _double("u", *(2 / (math.log(2) * k) for k in range(17, 0, -2)))
_EXP2 = _double("f", *(math.log(2) ** k / math.factorial(k) for k in range(9, -1, -1)))

# exp(c) = 2^n p, where p = exp(r) and |r| <= log(2) / 2. log(2) is in two parts, so that c - n log(2) is exact.
_REDUCED = f"""
    n = nearest(c * np.float32(1.44269504))
    r = fma(n, np.float32(-0.693359375), c)
    r = fma(n, np.float32(2.12194440e-4), r)
    p = fma({_EXP} * r, r, r) + np.float32(1.0)
""".removeprefix("\n")
_SOURCES = {
    # 2^n is in two parts, since it alone may be out of range where the result is not
    "exp_": f"""
def exp_(x):
    none = x < np.float32(-104.0)
    c = select(x > np.float32(89.0), np.float32(89.0), select(none, np.float32(0.0), x))
{_REDUCED}    k = np.int32(n)
    half = np.int32(k >> np.int32(1))
    low = unbits(np.int32((half + np.int32(127)) << np.int32(23)))
    high = unbits(np.int32((k - half + np.int32(127)) << np.int32(23)))
    return select(x == x, select(none, np.float32(0.0), p * low * high), x)
""",
    # exp(x) for x <= 0, such as a score less its row's largest: below the least normal number it is 0
    "decay_": f"""
def decay_(x):
    near = x > np.float32(-87.0)
    c = select(near, x, np.float32(-87.0))
{_REDUCED}    power = unbits(np.int32((np.int32(n) + np.int32(127)) << np.int32(23)))
    return select(near, p * power, select(x == x, np.float32(0.0), x))
""",
    # exp(x) for x <= 0, and exp(-64) below -64: a score's share of a softmax
    "share_": f"""
def share_(x):
    c = select(x < np.float32({LEAST_SHIFT}), np.float32({LEAST_SHIFT}), x)
{_REDUCED}    return p * unbits(np.int32((np.int32(n) + np.int32(127)) << np.int32(23)))
""",
    "expm1_": f"""
def expm1_(x):
    near = fma({_EXPM1} * x, x, x)
    return select(size_of(x) < np.float32(0.5), near, exp_(x) - np.float32(1.0))
""",
    "tanh_": f"""
def tanh_(x):
    a = size_of(x)
    u = x * x
    near = fma({_TANH} * u, x, x)
    c = select(a > np.float32(10.0), np.float32(10.0), a)
    far = np.float32(1.0) - np.float32(2.0) / (exp_(c + c) + np.float32(1.0))
    return select(a < np.float32(0.625), near, select(x < np.float32(0.0), -far, far))
""",
    # beyond 0.92 by 1 - exp(-x^2) erfcx(x): who needs the density beside it has that exponential as well
    "erf_": f"""
def erf_(x):
    a = size_of(x)
    u = x * x
    near = fma({_ERF}, x, x)
    c = select(a > np.float32(4.0), np.float32(4.0), a)
    far = np.float32(1.0) - exp_(-x * x) * {_ERFCX}
    return select(a < np.float32(0.92), near, select(x < np.float32(0.0), -far, far))
""",
    "log_": f"""
def log_(x):
    tiny = x < np.float32(1.17549435e-38)
    y = select(tiny, x * np.float32(8388608.0), x)
    b = bits(y) - np.int32(0x3f3504f3)
    e = np.int32(b >> np.int32(23))
    m = unbits(np.int32((b & np.int32(0x7fffff)) + np.int32(0x3f3504f3)))
    n = np.float32(e) + select(tiny, np.float32(-23.0), np.float32(0.0))
    f = m - np.float32(1.0)
    s = f * f
    p = {_LOG} * f * s
    p = fma(n, np.float32(-2.12194440e-4), p)
    p = fma(np.float32(-0.5), s, p)
    r = fma(n, np.float32(0.693359375), p + f)
    r = select(x < np.float32(np.inf), r, x)
    r = select(x == np.float32(0.0), np.float32(-np.inf), r)
    return select(x < np.float32(0.0), np.float32(np.nan), r)
""",
    "log1p_": """
def log1p_(x):
    u = x + np.float32(1.0)
    rest = x - (u - np.float32(1.0))
    r = log_(u) + rest / u
    r = select(u == np.float32(0.0), np.float32(-np.inf), r)
    return select(size_of(x) < np.float32(5e-8), x, select(x == np.float32(np.inf), x, r))
""",
    "log2_": "\ndef log2_(x):\n    return log_(x) * np.float32(1.44269504)\n",
    "log10_": "\ndef log10_(x):\n    return log_(x) * np.float32(0.434294482)\n",
    "sin_": "\ndef sin_(x):\n    return np.float32(math.sin(np.float64(x)))\n",
    "cos_": "\ndef cos_(x):\n    return np.float32(math.cos(np.float64(x)))\n",
    "tan_": "\ndef tan_(x):\n    return np.float32(math.tan(np.float64(x)))\n",
    # beyond 1/2 by asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)) (DLMF 4.24)
    "asin_": f"""
def asin_(x):
    a = size_of(x)
    far = a > np.float32(0.5)
    z = select(far, np.float32(0.5) - np.float32(0.5) * a, a * a)
    s = select(far, root(z), a)
    p = fma({_ASIN} * z, s, s)
    p = select(far, np.float32(1.57079633) - (p + p), p)
    return select(x < np.float32(0.0), -p, p)
""",
    "acos_": f"""
def acos_(x):
    a = size_of(x)
    far = a > np.float32(0.5)
    z = select(far, np.float32(0.5) - np.float32(0.5) * a, a * a)
    s = select(far, root(z), a)
    p = fma({_ASIN} * z, s, s)
    below = x < np.float32(0.0)
    near = np.float32(1.57079633) + select(below, p, -p)
    return select(far, select(below, np.float32(3.14159265) - (p + p), p + p), near)
""",
    # beyond tan(pi/8) by atan(x) = pi/4 + atan((x - 1) / (x + 1)), beyond its inverse by pi/2 - atan(1 / x)
    "atan_": f"""
def atan_(x):
    a = size_of(x)
    far, middle = a > np.float32(2.41421356), a > np.float32(0.414213562)
    over = select(far, np.float32(-1.0), select(middle, a - np.float32(1.0), a))
    under = select(far, a, select(middle, a + np.float32(1.0), np.float32(1.0)))
    base = select(middle, np.float32(0.785398163), np.float32(0.0))
    base = select(far, np.float32(1.57079633), base)
    t = over / under
    z = t * t
    r = base + fma({_ATAN} * z, t, t)
    return select(x < np.float32(0.0), -r, r)
""",
    "sinh_": """
def sinh_(x):
    a = size_of(x)
    t = expm1_(a)
    h = exp_(np.float32(0.5) * a)
    near = np.float32(0.5) * (t + t / (t + np.float32(1.0)))
    r = select(a > np.float32(20.0), np.float32(0.5) * h * h, near)
    return select(x < np.float32(0.0), -r, r)
""",
    "cosh_": """
def cosh_(x):
    h = exp_(np.float32(0.5) * size_of(x))
    return np.float32(0.5) * h * h + np.float32(0.5) / (h * h)
""",
    "asinh_": """
def asinh_(x):
    a = size_of(x)
    s = a * a
    near = log1p_(a + s / (np.float32(1.0) + root(s + np.float32(1.0))))
    r = select(a > np.float32(1e9), log_(a) + np.float32(0.693147181), near)
    return select(x < np.float32(0.0), -r, r)
""",
    "acosh_": """
def acosh_(x):
    t = x - np.float32(1.0)
    near = log1p_(t + root(t * (x + np.float32(1.0))))
    r = select(x > np.float32(1e9), log_(x) + np.float32(0.693147181), near)
    return select(x < np.float32(1.0), np.float32(np.nan), r)
""",
    "atanh_": """
def atanh_(x):
    a = size_of(x)
    r = np.float32(0.5) * log1p_((a + a) / (np.float32(1.0) - a))
    return select(x < np.float32(0.0), -r, r)
""",
    "ordered": """
def ordered(x):
    b = bits(x)
    return np.int32(b ^ (np.int32(b >> np.int32(31)) & np.int32(0x7fffffff)))
""",
    "unordered": """
def unordered(b):
    return unbits(np.int32(b ^ (np.int32(b >> np.int32(31)) & np.int32(0x7fffffff))))
""",
    # |x|^y = 2^(y log2 |x|) in double precision: the series of exp, and for m in [1/sqrt(2), sqrt(2)]
    # log2 m = 2 / log(2) artanh((m - 1) / (m + 1)) (DLMF 4.6.4). Zeros, infinities, signs: as C's pow.
    "pow_": f"""
def pow_(x, y):
    a = size_of(x)
    tiny = a < np.float32(1.17549435e-38)
    b = bits(select(tiny, a * np.float32(8388608.0), a)) - np.int32(0x3f3504f3)
    m = np.float64(unbits(np.int32((b & np.int32(0x7fffff)) + np.int32(0x3f3504f3))))
    e = np.float64(np.int32(b >> np.int32(23))) - select(tiny, 23.0, 0.0)
    s = (m - 1.0) / (m + 1.0)
    u = s * s
    e = fma(s, {_ARTANH}, e)
    e = select(a == np.float32(0.0), -np.inf, select(a < np.float32(np.inf), e, np.float64(a)))
    t = np.float64(y) * e
    c = select(t > 160.0, 160.0, select(t < -160.0, -160.0, t))
    n = nearest(c)
    f = c - n
    k = np.int32(n)
    half = np.int32(k >> np.int32(1))
    low = unbits(np.int32((half + np.int32(127)) << np.int32(23)))
    high = unbits(np.int32((k - half + np.int32(127)) << np.int32(23)))
    r = np.float32({_EXP2} * np.float64(low) * np.float64(high))
    r = select(t == t, r, np.float32(np.nan))
    whole = whole_below(y) == y
    z = y * np.float32(0.5)
    odd = whole & (whole_below(z) != z)
    r = select(odd & (bits(x) < np.int32(0)), -r, r)
    r = select((x < np.float32(0.0)) & (a < np.float32(np.inf)) & (whole == False), np.float32(np.nan), r)
    one = (y == np.float32(0.0)) | (x == np.float32(1.0))
    one = one | ((a == np.float32(1.0)) & (size_of(y) == np.float32(np.inf)))
    return select(one, np.float32(1.0), r)
""",
}


@lru_cache(1024)  # many nodes have one form, whatever their shapes
def definitions(body: str) -> str:
    """Return the source of the functions that a text calls, and of those that these call, in order."""
    wanted = {name for name in _SOURCES if re.search(rf"\b{name}\(", body)}
    while True:
        text = body + "".join(_SOURCES[name] for name in wanted)
        more = {name for name in _SOURCES if re.search(rf"\b{name}\(", text)}
        if more == wanted:
            return "".join(source for name, source in _SOURCES.items() if name in wanted)
        wanted = more
