// Functions of one element that C++ lacks or defines otherwise: integers divide and take powers as in NumPy, and
// what divides by 0 makes 0.
#pragma once

template <class T> __device__ __forceinline__ T quotient(T a, T b) {  // towards zero
  if (b == 0) return 0;
  if (b == (T)-1 && (T)-1 < 0) return (T)(0 - (unsigned long long)a);
  return (T)(a / b);
}
template <class T> __device__ __forceinline__ T rest(T a, T b) {  // has the sign of a
  if (b == 0 || (b == (T)-1 && (T)-1 < 0)) return 0;
  return (T)(a % b);
}
template <class T> __device__ __forceinline__ T floor_quotient(T a, T b) {
  T q = quotient(a, b), r = rest(a, b);
  return (T)(r != 0 && (r < 0) != (b < 0) ? q - 1 : q);
}
template <class T> __device__ __forceinline__ T floor_rest(T a, T b) {  // has the sign of b
  T r = rest(a, b);
  return (T)(r != 0 && (r < 0) != (b < 0) ? r + b : r);
}
__device__ __forceinline__ float rest(float a, float b) { return fmodf(a, b); }
__device__ __forceinline__ double rest(double a, double b) { return fmod(a, b); }
__device__ __forceinline__ float floor_rest(float a, float b) {
  float r = fmodf(a, b);
  return r == 0 ? copysignf(0.0f, b) : (r < 0) != (b < 0) ? r + b : r;
}
__device__ __forceinline__ double floor_rest(double a, double b) {
  double r = fmod(a, b);
  return r == 0 ? copysign(0.0, b) : (r < 0) != (b < 0) ? r + b : r;
}
__device__ __forceinline__ float floor_quotient(float a, float b) {
  float q = (a - floor_rest(a, b)) / b;
  return b == 0 ? a / b : rintf(q);
}
__device__ __forceinline__ double floor_quotient(double a, double b) {
  double q = (a - floor_rest(a, b)) / b;
  return b == 0 ? a / b : rint(q);
}
// Shifts by no place of T, which C++ does not define, move all bits out.
template <class T> __device__ __forceinline__ T left_shift(T a, T b) {
  return (unsigned long long)b < sizeof(T) * 8 ? (T)((unsigned long long)a << b) : (T)0;
}
template <class T> __device__ __forceinline__ T right_shift(T a, T b) {
  return (unsigned long long)b < sizeof(T) * 8 ? (T)(a >> b) : a < 0 ? (T)-1 : (T)0;
}
template <class T> __device__ __forceinline__ T whole_power(T base, T exponent) {
  if (exponent < 0) {  // cut at the point
    if (base == 0) return (T)(1ull << (sizeof(T) * 8 - 1));
    return base == 1 ? (T)1 : base == (T)-1 ? (exponent & 1 ? (T)-1 : (T)1) : (T)0;
  }
  unsigned long long made = 1, factor = (unsigned long long)base;
  for (T e = exponent; e > 0; e = (T)(e >> 1)) {
    if (e & 1) made *= factor;
    factor *= factor;
  }
  return (T)made;
}
// A number as an integer of fewer bits keeps its lower ones, by way of one that holds it.
template <class T, class N> __device__ __forceinline__ T whole(N x) { return (T)x; }
template <> __device__ __forceinline__ signed char whole<signed char, float>(float x) { return (signed char)(int)x; }
template <> __device__ __forceinline__ signed char whole<signed char, double>(double x) { return (signed char)(int)x; }
template <> __device__ __forceinline__ unsigned char whole<unsigned char, float>(float x) { return (unsigned char)(int)x; }
template <> __device__ __forceinline__ unsigned char whole<unsigned char, double>(double x) { return (unsigned char)(int)x; }
template <> __device__ __forceinline__ short whole<short, float>(float x) { return (short)(int)x; }
template <> __device__ __forceinline__ short whole<short, double>(double x) { return (short)(int)x; }
