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

// Where a sequence begins, and its length: by offsets (`apart` 0), or by lengths of sequences that lie `apart`.
template <class I> struct Span {
  long long begin, length;
  __device__ __forceinline__ Span(const I* ends, long long sequence, long long apart, long long rows) {
    const long long last = ends[apart ? sequence : sequence + 1], most = apart ? apart : rows;
    begin = apart ? sequence * apart : max(0LL, min((long long)ends[sequence], rows));
    length = max(0LL, min(last, most) - (apart ? 0 : begin));
  }
};
// Refuse spans that do not fit; in place of no label stands a -1.
template <class T, class I>
__device__ __forceinline__ void check_spans(const T* labels, const I* ends, long long count, long long apart,
                                            long long rows, long long* word, volatile long long* noted, int assertion) {
  if (apart)
    for (long long s = thread_index(); s < count; s += thread_count())
      if (ends[s] < 0 || ends[s] > apart) refuse(word, noted, assertion, ends[s]);
  if (apart || thread_index() || ends[count] == rows) return;
  if (ends[count] != 0 || rows != 1 || labels[0] != (T)-1) refuse(word, noted, assertion, ends[count]);
}

// Insertions, deletions and substitutions between two sequences, a block for each pair: a diagonal of the matrix of
// costs after the other, of which three are kept in `costs`.
template <class T, class R, class I, class J>
__device__ __forceinline__ void block_edit_distance(const T* hyps, const R* refs, const I* ends, const J* goals,
                                                    float* out, long long* number, int* costs, long long* word,
                                                    volatile long long* noted, int assertion, int assertion1,
                                                    int assertion2, long long count, long long rows,
                                                    long long goal_rows, long long apart, long long goal_apart,
                                                    int normalized) {
  check_spans(hyps, ends, count, apart, rows, word, noted, assertion);
  check_spans(refs, goals, count, goal_apart, goal_rows, word, noted, assertion1);
  if (thread_index() == 0) *number = count;
  const long long pair = blockIdx.x;
  if (pair >= count) return;
  const Span<I> own(ends, pair, apart, rows);
  const Span<J> goal(goals, pair, goal_apart, goal_rows);
  const long long size = goal.length + 1;
  int* last = costs + 3 * (goal.begin + pair);
  int *before = last + size, *now = before + size;
  for (long long diagonal = 0; diagonal <= own.length + goal.length; diagonal++) {
    for (long long j = threadIdx.x; j < size; j += blockDim.x) {
      const long long i = diagonal - j;
      if (i < 0 || i > own.length) continue;
      int cost = (int)(i + j);
      if (i && j) {
        const bool changed = (long long)hyps[own.begin + i - 1] != (long long)refs[goal.begin + j - 1];
        cost = min(min(before[j], before[j - 1]) + 1, last[j - 1] + changed);
      }
      now[j] = cost;
    }
    __syncthreads();
    int* const spare = last;
    last = before, before = now, now = spare;
  }
  if (threadIdx.x) return;
  if (normalized && !goal.length) refuse(word, noted, assertion2, pair);
  out[pair] = normalized && goal.length ? (float)((double)before[goal.length] / goal.length) : before[goal.length];
}
