// How values are joined: by the threads of a warp or a block, along rows and down columns. The order depends on
// shapes alone, so that a result has the same bits on every GPU.
#pragma once

#define EVERYWHERE __device__ __forceinline__

template <class A> struct Limits {  // whole numbers
  static EVERYWHERE A least() { return (A)(1ULL << 63); }
  static EVERYWHERE A most() { return (A)((1ULL << 63) - 1); }
};
template <> struct Limits<float> {
  static EVERYWHERE float least() { return __uint_as_float(0xff800000u); }
  static EVERYWHERE float most() { return __uint_as_float(0x7f800000u); }
};
template <> struct Limits<double> {
  static EVERYWHERE double least() { return -(double)Limits<float>::most(); }
  static EVERYWHERE double most() { return (double)Limits<float>::most(); }
};

struct Sum {
  template <class A> static EVERYWHERE A none() { return (A)0; }
  template <class A> static EVERYWHERE A join(A a, A b) { return a + b; }
};
struct Product {
  template <class A> static EVERYWHERE A none() { return (A)1; }
  template <class A> static EVERYWHERE A join(A a, A b) { return a * b; }
};
struct Max {  // what is not a number wins
  template <class A> static EVERYWHERE A none() { return Limits<A>::least(); }
  template <class A> static EVERYWHERE A join(A a, A b) { return a > b || a != a ? a : b; }
};
struct Min {
  template <class A> static EVERYWHERE A none() { return Limits<A>::most(); }
  template <class A> static EVERYWHERE A join(A a, A b) { return a < b || a != a ? a : b; }
};
struct All {
  template <class A> static EVERYWHERE A none() { return (A)1; }
  template <class A> static EVERYWHERE A join(A a, A b) { return a && b; }
};
struct Any {
  template <class A> static EVERYWHERE A none() { return (A)0; }
  template <class A> static EVERYWHERE A join(A a, A b) { return a || b; }
};

// ---- threads ---------------------------------------------------------------------------------------------
// All threads of the group call these, and all of them get the result. A group is a warp (G = 32) or a block.
template <class Op, class A> EVERYWHERE A warp_join(A v) {
#pragma unroll
  for (int by = 16; by; by >>= 1) v = Op::template join<A>(v, __shfl_xor_sync(0xffffffffu, v, by));
  return v;
}
template <class Op, class A> EVERYWHERE A block_join(A v) {
  __shared__ A kept[32];
  const int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
  v = warp_join<Op>(v);
  __syncthreads();  // what was joined before has been read
  if (lane == 0) kept[threadIdx.x >> 5] = v;
  __syncthreads();
  return warp_join<Op>(lane < warps ? kept[lane] : Op::template none<A>());
}
template <int G, class Op, class A> EVERYWHERE A block_or_warp_join(A v) {
  if constexpr (G == 1) return v;
  else if constexpr (G == 32) return warp_join<Op>(v);
  else return block_join<Op>(v);
}

// ---- rows ------------------------------------------------------------------------------------------------
// A group takes rows in turn; its threads share a row out in vectors of V elements. A group of one thread
// (G = 1, V = 1) takes rows whose elements are `stride` apart, so that neighbours read neighbours.
template <int G> EVERYWHERE int thread_of_group() {
  return G == 1 ? 0 : G == 32 ? threadIdx.x & 31 : threadIdx.x;
}
template <int G> EVERYWHERE long long first_row() {
  return G == 1 ? thread_index() : G == 32 ? thread_index() >> 5 : blockIdx.x;
}
template <int G> EVERYWHERE long long rows_at_once() {
  return G == 1 ? thread_count() : G == 32 ? thread_count() >> 5 : gridDim.x;
}
template <int G> EVERYWHERE long long row_start(long long row, int width, int stride) {
  return G == 1 ? row / stride * width * stride + row % stride : row * width;
}

// Call f(i, at) for this thread's vectors of a row: the i-th begins at element `at`. N bounds how many there
// are (0: any number, and i is 0).
template <int G, int V, int N, class F> EVERYWHERE void over_row(int width, F f) {
  if constexpr (N == 0) {
#pragma unroll 2
    for (int at = thread_of_group<G>() * V; at < width; at += G * V) f(0, at);
  } else {
#pragma unroll
    for (int i = 0; i < N; i++) {
      const int at = (i * G + thread_of_group<G>()) * V;
      if (at < width) f(i, at);
    }
  }
}

// A row that is in registers (N > 0), or is read again whenever it is looked at.
template <class T, int G, int V, int N> struct Row {
  Vec<T, V> held[N > 0 ? N : 1];
  const T* from;
  int stride;
  EVERYWHERE Row(const T* x, long long row, int width, int stride)
      : from(x + row_start<G>(row, width, stride)), stride(stride) {
    if constexpr (N > 0) over_row<G, V, N>(width, [&](int i, int at) { held[i] = load_vec<V>(from + at); });
  }
  EVERYWHERE Vec<T, V> get(int i, int at) const {
    if constexpr (N > 0) return held[i];
    else if constexpr (G == 1) return load_vec<V>(from + (long long)at * stride);
    else return load_vec<V>(from + at);
  }
  // What f makes of each element and of its column, joined over the row.
  template <class Op, class A, class F> EVERYWHERE A block_fold(int width, F f) const {
    A found = Op::template none<A>();
    over_row<G, V, N>(width, [&](int i, int at) {
      const Vec<T, V> v = get(i, at);
#pragma unroll
      for (int j = 0; j < V; j++) found = Op::template join<A>(found, f((A)wide(v.at[j]), at + j));
    });
    return block_or_warp_join<G, Op>(found);
  }
};

// Write what f makes of each element and of its column.
template <class A, class T, int G, int V, int N, class R, class F>
EVERYWHERE void write_row(const Row<T, G, V, N>& x, R* out, long long row, int width, F f) {
  R* to = out + row_start<G>(row, width, x.stride);
  over_row<G, V, N>(width, [&](int i, int at) {
    const Vec<T, V> v = x.get(i, at);
    Vec<R, V> made;
#pragma unroll
    for (int j = 0; j < V; j++) made.at[j] = element<R>(f((A)wide(v.at[j]), at + j));
    store_vec<V>(to + (G == 1 ? (long long)at * x.stride : at), made);
  });
}
// The same of two rows.
template <class A, class T, class U, int G, int V, int N, class R, class F>
EVERYWHERE void write_row(const Row<T, G, V, N>& x, const Row<U, G, V, N>& y, R* out, long long row, int width,
                          F f) {
  R* to = out + row_start<G>(row, width, x.stride);
  over_row<G, V, N>(width, [&](int i, int at) {
    const Vec<T, V> v = x.get(i, at);
    const Vec<U, V> w = y.get(i, at);
    Vec<R, V> made;
#pragma unroll
    for (int j = 0; j < V; j++) made.at[j] = element<R>(f((A)wide(v.at[j]), (A)wide(w.at[j]), at + j));
    store_vec<V>(to + (G == 1 ? (long long)at * x.stride : at), made);
  });
}
template <class Op, class A, class T, class U, int G, int V, int N, class F>
EVERYWHERE A block_fold(const Row<T, G, V, N>& x, const Row<U, G, V, N>& y, int width, F f) {
  A found = Op::template none<A>();
  over_row<G, V, N>(width, [&](int i, int at) {
    const Vec<T, V> v = x.get(i, at);
    const Vec<U, V> w = y.get(i, at);
#pragma unroll
    for (int j = 0; j < V; j++) found = Op::template join<A>(found, f((A)wide(v.at[j]), (A)wide(w.at[j]), at + j));
  });
  return block_or_warp_join<G, Op>(found);
}

// ---- columns ---------------------------------------------------------------------------------------------
// Join M values of LX * W columns down the 256 / LX rows of threads; thread (x, 0) gets the result. M has a
// static function `join`.
template <class M, int LX, int W> EVERYWHERE void block_join_down(M (&v)[W]) {
  constexpr int LY = 256 / LX;
  __shared__ M kept[LY][LX * W];
  const int x = threadIdx.x % LX, y = threadIdx.x / LX;
  __syncthreads();
#pragma unroll
  for (int j = 0; j < W; j++) kept[y][j * LX + x] = v[j];
#pragma unroll
  for (int half = LY / 2; half; half >>= 1) {
    __syncthreads();
    if (y < half) {
#pragma unroll
      for (int j = 0; j < W; j++) kept[y][j * LX + x] = M::join(kept[y][j * LX + x], kept[y + half][j * LX + x]);
    }
  }
#pragma unroll
  for (int j = 0; j < W; j++) v[j] = kept[y][j * LX + x];
}

// A block's part of [rows, width]: LX * V columns from blockIdx.x, and the rows of the chunk blockIdx.y.
template <int V_, int LX_> struct Columns {
  static constexpr int V = V_, LX = LX_, W = V_, LY = 256 / LX_;
  long long width, next, end;
  int column;
  EVERYWHERE Columns(long long rows, long long width, long long chunk) : width(width) {
    column = (int)(blockIdx.x * LX + threadIdx.x % LX) * V;
    const long long begin = blockIdx.y * chunk;
    end = min(begin + chunk, rows);
    next = column < width ? begin + threadIdx.x / LX : end;
  }
  EVERYWHERE long long at(long long k) const { return k * width + column; }
  EVERYWHERE int channel(int j) const { return column + j; }
  EVERYWHERE bool writes() const { return threadIdx.x < LX && column < width; }
};
