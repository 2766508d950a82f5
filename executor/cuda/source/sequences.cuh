// Rows of sequences, whose offsets are read where they lie.
#pragma once

// A zero, and running sums of lengths behind it: eight to a thread, then over a warp, then over the warps of a block.
template <class T>
__device__ __forceinline__ void block_offsets(const T* lengths, long long* out, long long count) {
  __shared__ long long sums[32];
  const int t = threadIdx.x, lane = t & 31, warp = t >> 5, warps = blockDim.x >> 5;
  long long carry = 0;
  if (t == 0) out[0] = 0;
  for (long long first = t * 8; first - t * 8 < count; first += blockDim.x * 8) {
    long long through[8], sum = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) through[k] = sum += first + k < count ? (long long)lengths[first + k] : 0;
    long long of_warp = sum;
    for (int by = 1; by < 32; by *= 2) {
      const long long lower = __shfl_sync(0xffffffffu, of_warp, (lane - by) & 31);
      if (lane >= by) of_warp += lower;
    }
    if (lane == 31) sums[warp] = of_warp;
    __syncthreads();
    long long before = carry + of_warp - sum;
    for (int w = 0; w < warps; w++) {
      if (w < warp) before += sums[w];
      carry += sums[w];
    }
#pragma unroll
    for (int k = 0; k < 8; k++)
      if (first + k < count) out[first + k + 1] = before + through[k];
    __syncthreads();
  }
}

// The number of the sequence that each row belongs to; sequences that do not end with the rows are refused.
template <class I>
__device__ __forceinline__ void number_rows(const I* ends, long long* out, long long* word, volatile long long* noted,
                                            int assertion, long long rows, long long count) {
  if (thread_index() == 0 && ends[count] != rows) refuse(word, noted, assertion, ends[count]);
  for (long long r = thread_index(); r < rows; r += thread_count()) {
    long long low = 0, high = count - 1;  // the first sequence that ends behind the row
    while (low < high) {
      const long long middle = (low + high) / 2;
      if (ends[middle + 1] > r) high = middle;
      else low = middle + 1;
    }
    out[r] = low;
  }
}
