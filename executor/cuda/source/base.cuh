// What every kernel may use: 16-bit floats, vectors of elements, indices. No CUDA header is needed, so NVRTC
// compiles it as it stands; on the host `shim.h` comes first.
#pragma once

struct alignas(2) f16 { unsigned short bits; };
struct alignas(2) bf16 { unsigned short bits; };

#ifndef ROWLOCK_ON_HOST
__device__ __forceinline__ float wide(f16 x) {
  float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); return y;
}
__device__ __forceinline__ f16 narrow_f16(float x) {
  f16 y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); return y;
}
__device__ __forceinline__ bf16 narrow_bf16(float x) {
  bf16 y; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); return y;
}
#endif
__device__ __forceinline__ float wide(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
__device__ __forceinline__ float wide(float x) { return x; }
__device__ __forceinline__ double wide(double x) { return x; }
__device__ __forceinline__ bool wide(bool x) { return x; }
__device__ __forceinline__ int wide(int x) { return x; }
__device__ __forceinline__ long long wide(long long x) { return x; }
__device__ __forceinline__ int wide(short x) { return x; }
__device__ __forceinline__ int wide(signed char x) { return x; }
__device__ __forceinline__ int wide(unsigned char x) { return x; }

// Round a computed number to an element: `element<T>(x)`.
template <class T> struct Round {
  template <class N> static __device__ __forceinline__ T from(N x) { return (T)x; }
};
template <> struct Round<f16> {
  template <class N> static __device__ __forceinline__ f16 from(N x) { return narrow_f16((float)x); }
};
template <> struct Round<bf16> {
  template <class N> static __device__ __forceinline__ bf16 from(N x) { return narrow_bf16((float)x); }
};
template <class T, class N> __device__ __forceinline__ T element(N x) { return Round<T>::from(x); }

// N elements that are loaded and stored at once; their address is a multiple of their size.
template <class T, int N> struct alignas(sizeof(T) * N) Vec { T at[N]; };
template <int N, class T> __device__ __forceinline__ Vec<T, N> load_vec(const T* from) {
  return *reinterpret_cast<const Vec<T, N>*>(from);
}
template <int N, class T> __device__ __forceinline__ void store_vec(T* to, const Vec<T, N>& v) {
  *reinterpret_cast<Vec<T, N>*>(to) = v;
}

__device__ __forceinline__ long long thread_index() {
  return (long long)blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ long long thread_count() { return (long long)gridDim.x * blockDim.x; }
