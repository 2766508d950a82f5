// Rows of attention's scores: a group of G threads (a warp, or the block) holds one in registers, N times V
// neighbouring elements a thread. A: what is computed in; T: what is kept.
#pragma once

template <class A> struct Top {  // what is not a number wins
  static __device__ __forceinline__ A join(A a, A b) { return a > b || a != a ? a : b; }
};
template <class A> struct Total {
  static __device__ __forceinline__ A join(A a, A b) { return a + b; }
};

template <int G, class Op, class A> __device__ __forceinline__ A row_join(A v) {
#pragma unroll
  for (int by = 16; by; by >>= 1) v = Op::join(v, __shfl_xor_sync(0xffffffffu, v, by));
  if (G == 32) return v;
  __shared__ A kept[32];
  const int lane = threadIdx.x & 31;
  __syncthreads();  // what was joined before has been read
  if (lane == 0) kept[threadIdx.x >> 5] = v;
  __syncthreads();
  v = kept[0];
  for (int i = 1; i < G / 32; i++) v = Op::join(v, kept[i]);
  return v;
}

// Where an array that broadcasts to scores [B, H, T, S] has a row.
struct Strides { long long b, h, t; };
__device__ __forceinline__ long long row_at(long long r, int heads, int rows, Strides s) {
  const long long head = r / rows;
  return head / heads * s.b + head % heads * s.h + (r - head * rows) * s.t;
}

template <int G, int N, int V, class A, class T>
__device__ __forceinline__ void load_scores(A* x, const A* from, const T* mask, int along, int size, int lane) {
#pragma unroll
  for (int i = 0; i < N; i++) {
    const int j = (lane + i * G) * V;
    if (j >= size) continue;
    const Vec<A, V> got = load_vec<V>(from + j);
#pragma unroll
    for (int k = 0; k < V; k++) x[i * V + k] = got.at[k] + (mask ? (A)wide(mask[(long long)(j + k) * along]) : (A)0);
  }
}

// Turn scores into exp(x - top); every thread gets top and total of the row.
template <int G, int N, int V, class A>
__device__ __forceinline__ void block_soften(A* x, int size, int lane, A& top, A& total) {
  A least = -(A)__uint_as_float(0x7f800000u);
#pragma unroll
  for (int i = 0; i < N * V; i++)
    if ((lane + i / V * G) * V < size) least = Top<A>::join(least, x[i]);
  top = row_join<G, Top<A>>(least);
  A sum = 0;
#pragma unroll
  for (int i = 0; i < N * V; i++)
    if ((lane + i / V * G) * V < size) sum += x[i] = exp(x[i] - top);
  total = row_join<G, Total<A>>(sum);
}

template <int G, int N, int V, class A, class T>
__device__ __forceinline__ void store_row(T* to, const A* x, const bool* mark, A factor, int size, int lane) {
#pragma unroll
  for (int i = 0; i < N; i++) {
    const int j = (lane + i * G) * V;
    if (j >= size) continue;
    Vec<T, V> made;
#pragma unroll
    for (int k = 0; k < V; k++) made.at[k] = element<T>(mark && mark[j + k] ? (A)0 : x[i * V + k] * factor);
    store_vec<V>(to + j, made);
  }
}
