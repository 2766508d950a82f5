// Which rows are a sequence's: sequences are cut by offsets, or (PADDED) lie in a batch of `all` steps, of which the
// first `ends[b]` count. A block takes one.
#pragma once

template <class I> EVERYWHERE int offset(const I* ends, int sequence, int rows) {
  return (int)max(0LL, min((long long)ends[sequence], (long long)rows));
}
template <class I> EVERYWHERE int length_of(const I* ends, int sequence, int rows) {
  return max(0, offset(ends, sequence + 1, rows) - offset(ends, sequence, rows));
}

struct Stretch {  // where they begin, and how many there are
  int begin, length;
  template <bool PADDED, class I>
  static EVERYWHERE Stretch of(const I* ends, int all, long long* word, volatile long long* noted, int assertion) {
    const int b = blockIdx.x;
    if constexpr (PADDED) {
      if (threadIdx.x == 0 && (ends[b] < 0 || ends[b] > all)) refuse(word, noted, assertion, ends[b]);
      return {0, offset(ends, b, all)};
    } else {
      if (b == 0 && threadIdx.x == 0 && ends[gridDim.x] != all) refuse(word, noted, assertion, ends[gridDim.x]);
      const int begin = offset(ends, b, all);
      return {begin, length_of(ends, b, all)};
    }
  }
};
