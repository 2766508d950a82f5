// Rows of sequences, whose offsets are read where they lie.
#pragma once

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
