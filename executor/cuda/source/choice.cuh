// The best elements of rows, and running sums; comes after reduce.cuh.
#pragma once

// An element and its column (-1: none). Of equals the first wins; what is not a number comes first or last.
template <class A> struct Choice {
  A value;
  int column;
};
template <bool LEAST, bool FIRST, class A> EVERYWHERE bool wins(const Choice<A>& a, const Choice<A>& b) {
  if (a.column < 0 || b.column < 0) return b.column < 0 && a.column >= 0;
  const bool odd = a.value != a.value, other = b.value != b.value;
  if (odd != other) return odd == FIRST;
  if (!odd && a.value != b.value) return LEAST ? a.value < b.value : a.value > b.value;
  return a.column < b.column;
}
template <bool LEAST, bool FIRST, class A> EVERYWHERE Choice<A> warp_choose(Choice<A> v) {
#pragma unroll
  for (int by = 16; by; by >>= 1) {
    const Choice<A> other = {__shfl_xor_sync(0xffffffffu, v.value, by), __shfl_xor_sync(0xffffffffu, v.column, by)};
    if (wins<LEAST, FIRST>(other, v)) v = other;
  }
  return v;
}
template <int G, bool LEAST, bool FIRST, class A> EVERYWHERE Choice<A> block_or_warp_choose(Choice<A> v) {
  if constexpr (G == 1) return v;
  else if constexpr (G == 32) return warp_choose<LEAST, FIRST>(v);
  else {
    __shared__ A values[32];
    __shared__ int columns[32];
    const int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    v = warp_choose<LEAST, FIRST>(v);
    __syncthreads();
    if (lane == 0) values[threadIdx.x >> 5] = v.value, columns[threadIdx.x >> 5] = v.column;
    __syncthreads();
    v = {values[lane < warps ? lane : 0], columns[lane < warps ? lane : 0]};
    return warp_choose<LEAST, FIRST>(v);
  }
}

// The `count` best elements of each row and their columns, best first (`out` may be null).
template <class T, class A, bool LEAST, bool FIRST, int G>
EVERYWHERE void block_choose(const T* x, T* out, long long* columns, long long rows, int width, int stride, int count) {
  for (long long r = first_row<G>(); r < rows; r += rows_at_once<G>()) {
    const T* from = x + row_start<G>(r, width, stride);
    Choice<A> last = {0, -1};
    for (int k = 0; k < count; k++) {
      Choice<A> best = {0, -1};
      for (int at = thread_of_group<G>(); at < width; at += G) {
        const Choice<A> found = {(A)wide(from[G == 1 ? (long long)at * stride : at]), at};
        if ((k == 0 || wins<LEAST, FIRST>(last, found)) && wins<LEAST, FIRST>(found, best)) best = found;
      }
      last = block_or_warp_choose<G, LEAST, FIRST>(best);
      if (thread_of_group<G>() == 0) {
        columns[r * count + k] = last.column;
        if (out) out[r * count + k] = from[G == 1 ? (long long)last.column * stride : last.column];
      }
    }
  }
}

// The first row of the largest, by sequence and column; `count` of them.
template <class T, class A, class I, int G>
EVERYWHERE void block_row_of_largest(const I* ends, const T* x, long long* out, long long rows, long long count,
                                     long long width) {
  for (long long k = first_row<G>(); k < count; k += rows_at_once<G>()) {
    const long long sequence = k / width, column = k - sequence * width;
    const long long end = min((long long)ends[sequence + 1], rows);
    Choice<A> best = {0, -1};
    for (long long r = ends[sequence] + thread_of_group<G>(); r < end; r += G) {
      const Choice<A> found = {(A)wide(x[r * width + column]), (int)r};
      if (wins<false, true>(found, best)) best = found;
    }
    best = block_or_warp_choose<G, false, true>(best);
    if (thread_of_group<G>() == 0) out[k] = best.column;
  }
}

// Put what comes back for each of `count` columns of a row in its place, and 0 elsewhere.
template <class T> EVERYWHERE void put_back(const long long* columns, const T* d_out, T* d_x, long long rows, int width, int count) {
  for (long long r = first_row<32>(); r < rows; r += rows_at_once<32>()) {
    for (int at = thread_of_group<32>(); at < width; at += 32) {
      T d = element<T>(0);
      for (int k = 0; k < count; k++)
        if (columns[r * count + k] == at) d = d_out[r * count + k];
      d_x[r * width + at] = d;
    }
  }
}

// How many rows of guesses hold their label; one block.
template <class G, class L>
EVERYWHERE void block_count_hits(const G* guesses, const L* labels, float* accuracy, int* correct, int* total,
                                 long long rows, int count) {
  long long hits = 0;
  for (long long r = threadIdx.x; r < rows; r += blockDim.x) {
    bool hit = false;
    for (int k = 0; k < count; k++) hit |= (long long)guesses[r * count + k] == (long long)labels[r];
    hits += hit;
  }
  hits = block_join<Sum>(hits);
  if (threadIdx.x == 0) {
    if (accuracy) *accuracy = (float)((double)hits / (double)max(rows, 1LL));
    if (correct) *correct = (int)hits;
    if (total) *total = (int)rows;
  }
}

// Running sums of rows, 32 elements at a time (G = 32) or one after the other (G = 1).
template <class T, class A, bool EXCLUSIVE, bool REVERSE, int G, class R>
EVERYWHERE void warp_running_sums(const T* x, R* out, long long rows, int width, int stride) {
  for (long long r = first_row<G>(); r < rows; r += rows_at_once<G>()) {
    const long long start = row_start<G>(r, width, stride);
    A before = 0;
    for (int at = 0; at < width; at += G) {
      const int k = at + thread_of_group<G>(), column = REVERSE ? width - 1 - k : k;
      const long long where = start + (G == 1 ? (long long)column * stride : column);
      const A own = k < width ? (A)wide(x[where]) : (A)0;
      A sum = own, without = 0;
      if constexpr (G == 32) {
#pragma unroll
        for (int by = 1; by < 32; by <<= 1) {
          const A lower = __shfl_sync(0xffffffffu, sum, (threadIdx.x & 31) - by);
          if ((threadIdx.x & 31) >= by) sum += lower;
        }
        without = __shfl_sync(0xffffffffu, sum, (threadIdx.x & 31) - 1);
        if ((threadIdx.x & 31) == 0) without = 0;
      }
      if (k < width) out[where] = element<R>(before + (EXCLUSIVE ? without : sum));
      if constexpr (G == 32) before += __shfl_sync(0xffffffffu, sum, 31);
      else before += own;
    }
  }
}
