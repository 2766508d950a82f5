// What a kernel asserts of numbers that it reads (device_assert.py).
#pragma once

// Let no later kernel write what lasts, and tell the host which number is wrong; the first to come does.
__device__ __forceinline__ void refuse(long long* word, volatile long long* noted, int assertion, long long wrong) {
  if (atomicCAS((unsigned long long*)word, 0ull, (unsigned long long)assertion) != 0) return;
  noted[0] = wrong;
  __threadfence_system();
  noted[1] = assertion;
}
