// Philox4x64-10 (Salmon et al., SC 2011), the numbers of executor/device/philox.py: element e of a draw is the e-th 32-bit
// word of the stream; eight words are a block.
#pragma once

struct Words { unsigned at[8]; };
struct Key { unsigned long long first, second; };

__device__ __forceinline__ Words philox(
    unsigned long long block, unsigned long long draw, unsigned long long step, Key key) {
  unsigned long long c0 = block + 1, c1 = draw, c2 = step, c3 = 0;
#pragma unroll
  for (int round = 0; round < 10; round++) {
    const unsigned long long h0 = __umul64hi(c0, 0xD2E7470EE14C6C93ull);
    const unsigned long long h1 = __umul64hi(c2, 0xCA5A826395121157ull);
    const unsigned long long l0 = c0 * 0xD2E7470EE14C6C93ull, l1 = c2 * 0xCA5A826395121157ull;
    c0 = h1 ^ c1 ^ key.first;
    c1 = l1;
    c2 = h0 ^ c3 ^ key.second;
    c3 = l0;
    key.first += 0x9E3779B97F4A7C15ull;
    key.second += 0xBB67AE8584CAA73Bull;
  }
  Words made;
  const unsigned long long c[4] = {c0, c1, c2, c3};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    made.at[2 * i] = (unsigned)c[i];
    made.at[2 * i + 1] = (unsigned)(c[i] >> 32);
  }
  return made;
}

// A standard normal from two words (Box and Muller, 1958).
__device__ __forceinline__ double normal(unsigned radius, unsigned angle) {
  const double part = 2.3283064365386963e-10;  // 2^-32
  return sqrt(-2.0 * log(((double)radius + 1.0) * part)) * cos((double)angle * (6.283185307179586 * part));
}
