// Positions: division by numbers that are known before the launch, patterns of bits, elements by place.
#pragma once

// n / d for n below 2^31; `magic` and `shift` belong to d.
__device__ __forceinline__ unsigned over(unsigned n, unsigned magic, unsigned shift) {
  return (__umulhi(n, magic) + n) >> shift;
}

// A unit of memory filled with a pattern of eight bytes.
template <class T> __device__ __forceinline__ T spread(unsigned long long bits) { return (T)bits; }
template <> __device__ __forceinline__ ulonglong2 spread<ulonglong2>(unsigned long long bits) {
  ulonglong2 made;
  made.x = bits;
  made.y = bits;
  return made;
}
static const unsigned long long OUTSIDE = 0xffffffffffffffffull;  // not a number, whatever the float; -1
