// Loss scaling over many gradients at once. A line of `table` is a part of one of them: where it lies, where it
// is written, how many elements it has. A block takes a line.
#pragma once

template <class T, class F> __device__ __forceinline__ void over_part(const long long* table, F f) {
  constexpr int V = 16 / sizeof(T);
  const T* from = (const T*)table[3 * blockIdx.x];
  T* to = (T*)table[3 * blockIdx.x + 1];
  const long long size = table[3 * blockIdx.x + 2];
  const bool aligned = (((unsigned long long)from | (unsigned long long)to) & 15) == 0;
  const long long vectors = aligned ? size / V : 0;
#pragma unroll 4
  for (long long i = threadIdx.x; i < vectors; i += blockDim.x) {
    Vec<T, V> v = load_vec<V>(from + i * V);
#pragma unroll
    for (int j = 0; j < V; j++) v.at[j] = f(v.at[j]);
    store_vec<V>(to + i * V, v);
  }
  for (long long i = vectors * V + threadIdx.x; i < size; i += blockDim.x) to[i] = f(from[i]);
}

// Divide by the scale; tell if an element is infinite or no number (threads that do write the same).
template <class T, class A, class S>
__device__ __forceinline__ void unscale(const long long* table, const S* scale, bool* found) {
  const A inverse = (A)1 / (A)wide(*scale);
  bool odd = false;
  over_part<T>(table, [&](T x) {
    const A v = wide(x);
    odd |= v - v != (A)0;
    return element<T>(v * inverse);
  });
  if (odd) *found = true;
}

template <class T>
__device__ __forceinline__ void zero_where_found(const long long* table, const bool* found) {
  const bool zero = *found;
  if (!zero && table[3 * blockIdx.x] == table[3 * blockIdx.x + 1]) return;
  over_part<T>(table, [=](T x) { return zero ? element<T>(0) : x; });
}

// Where the counter is full it begins again, and the scale follows if what it would be is finite.
template <class S, class I>
__device__ __forceinline__ void follow(S& scale, S wanted, I& counter, int full) {
  if (counter < full) return;
  counter = 0;
  if (wanted - wanted == (S)0) scale = wanted;
}

// One thread: a row of bad steps ends with a good one, and the other way round.
template <class S, class I>
__device__ __forceinline__ void rescale(const bool* found, const S* old_scale, const I* old_good, const I* old_bad,
                                        S* new_scale, I* new_good, I* new_bad, int more_after, int less_after, S more,
                                        S less, int fixed) {
  S scale = *old_scale;
  I good = *old_good, bad = *old_bad;
  if (!fixed) {
    good = *found ? 0 : good + 1;
    bad = *found ? bad + 1 : 0;
    follow(scale, scale * more, good, more_after);
    follow(scale, scale * less < (S)1 ? (S)1 : scale * less, bad, less_after);
  }
  if (new_scale) *new_scale = scale;
  if (new_good) *new_good = good;
  if (new_bad) *new_bad = bad;
}
