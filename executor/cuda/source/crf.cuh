// Chains of tags: a block takes one sequence through its rows. Sequences are cut by offsets, or (PADDED) are `steps`
// rows each, of which the first `ends[b]` count. Legend: `tags` a row; of `transition` and its powers [tags + 2, tags]
// the first row is for a chain's first tag, the second for its last, the others for what follows a tag.
#pragma once

struct Refusal {  // of offsets or lengths, and of labels
  long long* word;
  volatile long long* noted;
  int ends, label;
};
struct Chain {
  int begin, length, all;  // rows, and those with what is padded
  template <bool PADDED, class I> static EVERYWHERE Chain of(const I* ends, int rows, int steps, Refusal no) {
    const Stretch own = Stretch::of<PADDED>(ends, PADDED ? steps : rows, no.word, no.noted, no.ends);
    return {PADDED ? (int)blockIdx.x * steps : own.begin, own.length, PADDED ? steps : own.length};
  }
};
template <class L> EVERYWHERE int tag_of(const L* label, long long row, int tags, Refusal no) {
  const long long tag = label[row];
  if (tag >= 0 && tag < tags) return (int)tag;
  if (threadIdx.x == 0) refuse(no.word, no.noted, no.label, tag);
  return 0;
}

// alpha: how likely each tag is after the rows so far, scaled to a sum of 1 in each row (Rabiner, 1989).
template <class T, class I, class L, bool PADDED>
EVERYWHERE void block_crf(const T* x, const T* transition, const T* between, const L* label, const I* ends, T* alpha,
                          T* powers, T* loss, long long* word, volatile long long* noted, int assertion,
                          int of_label, int rows, int steps, int tags) {
  const Refusal no = {word, noted, assertion, of_label};
  const Chain chain = Chain::of<PADDED>(ends, rows, steps, no);
  T total = 0;
  int before = 0;
  for (int step = 0; step < chain.all; step++) {
    const long long row = chain.begin + step, at = row * tags;
    T most = Max::none<T>(), sum = 0;
    for (int j = threadIdx.x; j < tags; j += blockDim.x) most = Max::join(most, x[at + j]);
    most = block_join<Max>(most);
    for (int j = threadIdx.x; j < tags; j += blockDim.x) {
      T prior = step ? (T)0 : between[j];
      for (int i = 0; step && i < tags; i++) prior += alpha[at - tags + i] * between[(2 + i) * tags + j];
      powers[at + j] = exp(x[at + j] - most);
      alpha[at + j] = step < chain.length ? prior * powers[at + j] : (T)0;
      sum += alpha[at + j];
    }
    if (step >= chain.length) continue;
    sum = block_join<Sum>(sum);
    for (int j = threadIdx.x; j < tags; j += blockDim.x) alpha[at + j] /= sum;
    const int tag = tag_of(label, row, tags, no);
    total += log(sum) + most - x[at + tag] - transition[step ? (2 + before) * tags + tag : tag];
    before = tag;
    __syncthreads();
  }
  if (chain.length) {
    T sum = 0;
    const long long last = (long long)(chain.begin + chain.length - 1) * tags;
    for (int j = threadIdx.x; j < tags; j += blockDim.x) sum += alpha[last + j] * between[tags + j];
    total += log(block_join<Sum>(sum)) - transition[tags + before];
  }
  if (threadIdx.x == 0) loss[blockIdx.x] = total;
}

// How likely each tag is, less the label's. `earlier` times `later`, summed over rows, is how likely each pair is, but
// for its power; `pair` is the labels' pair of each row, -1 of a first one, and `less` what it counts.
template <class T, class I, class L, bool PADDED>
EVERYWHERE void block_crf_grad(const T* alpha, const T* powers, const T* between, const L* label, const T* d_loss,
                               const I* ends, T* d_x, T* beta, T* earlier, T* later, T* first, T* final, T* less,
                               int* pair, long long* word, volatile long long* noted, int assertion, int of_label,
                               int rows, int steps, int tags) {
  const Refusal no = {word, noted, assertion, of_label};
  const Chain chain = Chain::of<PADDED>(ends, rows, steps, no);
  const T d = d_loss[blockIdx.x];
  for (int j = threadIdx.x; chain.length == 0 && j < tags; j += blockDim.x)
    first[blockIdx.x * tags + j] = final[blockIdx.x * tags + j] = 0;
  for (int step = chain.all - 1; step >= 0; step--) {
    const long long row = chain.begin + step, at = row * tags;
    const bool inside = step < chain.length, last = step == chain.length - 1;
    if (threadIdx.x == 0) {
      const bool follows = inside && step;
      pair[row] = follows ? tag_of(label, row - 1, tags, no) * tags + tag_of(label, row, tags, no) : -1;
      less[row] = -d;
    }
    for (int j = threadIdx.x; (!inside || step == 0) && j < tags; j += blockDim.x) {
      earlier[at + j] = 0;
      if (!inside) later[at + j] = d_x[at + j] = 0;
    }
    if (!inside) continue;
    T sum = 0;
    for (int j = threadIdx.x; !last && j < tags; j += blockDim.x) {
      later[at + tags + j] = beta[at + tags + j] * powers[at + tags + j];
      sum += later[at + tags + j];
    }
    const T coming = block_join<Sum>(sum);
    sum = 0;
    for (int i = threadIdx.x; i < tags; i += blockDim.x) {
      T after = last ? between[tags + i] : (T)0;
      for (int j = 0; !last && j < tags; j++) after += later[at + tags + j] / coming * between[(2 + i) * tags + j];
      beta[at + i] = after;
      sum += alpha[at + i] * after;
    }
    const T share = d / block_join<Sum>(sum);
    const int tag = tag_of(label, row, tags, no);
    for (int j = threadIdx.x; j < tags; j += blockDim.x) {
      const T slope = alpha[at + j] * beta[at + j] * share - (j == tag ? d : (T)0);
      d_x[at + j] = slope;
      if (step == 0) first[blockIdx.x * tags + j] = slope, later[at + j] = 0;
      if (last) final[blockIdx.x * tags + j] = slope;
      else later[at + tags + j] *= share / coming, earlier[at + tags + j] = alpha[at + j];
    }
    __syncthreads();
  }
}

// The chain with the largest score (Viterbi, 1967); with labels, where it is the same: 1, else 0.
template <class T, class I, class L, bool PADDED>
EVERYWHERE void block_crf_decoding(const T* x, const T* transition, const L* label, const I* ends, T* score,
                                   int* source, long long* path, long long* word, volatile long long* noted,
                                   int assertion, int rows, int steps, int tags) {
  const Chain chain = Chain::of<PADDED>(ends, rows, steps, Refusal{word, noted, assertion, 0});
  for (int step = 0; step < chain.length; step++) {
    const long long at = (long long)(chain.begin + step) * tags;
    for (int j = threadIdx.x; j < tags; j += blockDim.x) {
      Choice<T> best = {0, -1};
      for (int i = 0; step && i < tags; i++) {
        const Choice<T> found = {score[at - tags + i] + transition[(2 + i) * tags + j], i};
        if (wins<false, true>(found, best)) best = found;
      }
      score[at + j] = (step ? best.value : transition[j]) + x[at + j];
      source[at + j] = best.column;
    }
    __syncthreads();
  }
  if (threadIdx.x) return;
  for (int step = chain.length; step < chain.all; step++) path[chain.begin + step] = 0;
  Choice<T> best = {0, -1};
  for (int j = 0; chain.length && j < tags; j++) {
    const Choice<T> found = {score[(long long)(chain.begin + chain.length - 1) * tags + j] + transition[tags + j], j};
    if (wins<false, true>(found, best)) best = found;
  }
  for (int step = chain.length - 1, tag = best.column; step >= 0; step--) {
    const long long row = chain.begin + step;
    path[row] = label ? tag == (long long)label[row] : tag;
    tag = source[row * tags + tag];
  }
}
