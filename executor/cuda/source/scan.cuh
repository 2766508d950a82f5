// Running sums, by one block.
#pragma once

// Call put(k, sum before k, element k) for each of `count` elements get(k): eight to a thread at a time, then over a
// warp, then over the warps.
template <class A, class Get, class Put>
__device__ __forceinline__ void block_scan(long long count, Get get, Put put) {
  __shared__ A sums[32];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  A carry = 0;
  for (long long start = 0; start < count; start += blockDim.x * 8) {
    const long long first = start + threadIdx.x * 8;
    A own[8], sum = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) sum += own[k] = first + k < count ? (A)get(first + k) : (A)0;
    A through = sum;
    for (int by = 1; by < 32; by *= 2) {
      const A lower = __shfl_sync(0xffffffffu, through, (lane - by) & 31);
      if (lane >= by) through += lower;
    }
    if (lane == 31) sums[warp] = through;
    __syncthreads();
    A before = carry + through - sum;
    for (int w = 0; w < warps; w++) {
      if (w < warp) before += sums[w];
      carry += sums[w];
    }
#pragma unroll
    for (int k = 0; k < 8; k++) {
      if (first + k < count) put(first + k, before, own[k]);
      before += own[k];
    }
    __syncthreads();
  }
}

// Each count becomes the sum of those before it.
template <class A> __device__ __forceinline__ void block_sums_before(A* counts, long long count) {
  block_scan<A>(count, [=](long long k) { return counts[k]; }, [=](long long k, A before, A) { counts[k] = before; });
}

// A zero, and running sums of lengths behind it.
template <class T>
__device__ __forceinline__ void block_offsets(const T* lengths, long long* out, long long count) {
  if (threadIdx.x == 0) out[0] = 0;
  block_scan<long long>(count, [=](long long k) { return lengths[k]; },
                        [=](long long k, long long before, long long own) { out[k + 1] = before + own; });
}
