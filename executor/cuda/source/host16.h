// 16-bit floats on the host; comes after base.cuh.
#pragma once
float wide(f16 x) {
  unsigned sign = (x.bits & 0x8000u) << 16, e = (x.bits >> 10) & 31u, m = x.bits & 1023u;
  if (e == 31) return __uint_as_float(sign | 0x7f800000u | (m << 13));
  if (e == 0) { float f = (float)m * 5.9604644775390625e-8f; return sign ? -f : f; }
  return __uint_as_float(sign | ((e + 112u) << 23) | (m << 13));
}
f16 narrow_f16(float x) {
  unsigned u = __float_as_uint(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return {(unsigned short)(sign | 0x7e00u)};
  if (a >= 0x477ff000u) return {(unsigned short)(sign | 0x7c00u)};
  if (a < 0x38800000u) {  // below the least normal number: round to multiples of 2^-24, ties to even
    return {(unsigned short)(sign | (unsigned)rintf(__uint_as_float(a) * 16777216.0f))};
  }
  a += 0xfffu + ((a >> 13) & 1u);
  return {(unsigned short)(sign | ((a >> 13) - (112u << 10)))};
}
bf16 narrow_bf16(float x) {
  unsigned u = __float_as_uint(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
  return {(unsigned short)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}
