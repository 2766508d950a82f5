// Connectionist temporal classification (Graves et al., 2006): a block takes one sequence through its steps, in
// logarithms of double precision. Sequences are cut by offsets, or (PADDED) are columns of a batch [steps, sequences],
// of which the first `ends[b]` rows count. Legend: places of a sequence's labels, with a blank before, between and
// behind them; `most` places have room, and longer labels than a sequence has rows have no path.
#pragma once

template <bool PADDED> EVERYWHERE long long row_of(Stretch steps, int step) {
  return PADDED ? (long long)step * gridDim.x + blockIdx.x : steps.begin + step;
}

EVERYWHERE double never() { return Limits<double>::least(); }  // the logarithm of 0
EVERYWHERE double either(double a, double b) {
  const double most = a > b ? a : b;
  return most == never() ? never() : most + log1p(exp((a > b ? b : a) - most));
}

template <class L> struct Places {
  const L* label;
  int count, classes, blank;
  EVERYWHERE int of(int place) const {
    if (place % 2 == 0) return blank;
    const long long c = label[place / 2];
    return c >= 0 && c < classes ? (int)c : blank;
  }
  // A path may come from two places before, past a blank between unlike labels.
  EVERYWHERE bool jumps(int place) const {
    return place % 2 && place > 2 && of(place) != blank && of(place) != of(place - 2);
  }
};

// The loss, and its gradient (or none): softmax less how often paths are at a class. Without a path both are 0.
template <class T, class L, class I, class J, bool PADDED>
EVERYWHERE void block_ctc(const T* x, const L* label, const I* ends, const J* label_ends, double* logs, double* alpha,
                          double* beta, T* gradient, T* loss, long long* word, volatile long long* noted,
                          int assertion, int of_labels, int of_label, int all, int all_labels, int most, int classes,
                          int blank) {
  const Stretch steps = Stretch::of<PADDED>(ends, all, word, noted, assertion);
  const Stretch labels = Stretch::of<PADDED>(label_ends, all_labels, word, noted, of_labels);
  const L* own = label + (PADDED ? (long long)blockIdx.x * all_labels : labels.begin);
  for (int k = threadIdx.x; k < labels.length; k += blockDim.x)
    if (own[k] < 0 || own[k] >= classes) refuse(word, noted, of_label, own[k]);
  const Places<L> places = {own, 2 * labels.length + 1, classes, blank};
  const int length = labels.length > steps.length ? 0 : steps.length;  // with no path there is nothing to follow
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  for (int begin = 0; begin < length; begin += warps) {  // all warps go round alike
    const long long row = row_of<PADDED>(steps, min(begin + warp, length - 1));
    T largest = Max::none<T>();
    for (int c = lane; c < classes; c += 32) largest = Max::join(largest, x[row * classes + c]);
    largest = warp_join<Max>(largest);
    double sum = 0;
    for (int c = lane; c < classes; c += 32) sum += (double)exp(x[row * classes + c] - largest);
    sum = warp_join<Sum>(sum);
    if (lane == 0) logs[row] = (double)largest + log(sum);
  }
  __syncthreads();
  for (int step = 0; step < length; step++) {
    const long long row = row_of<PADDED>(steps, step);
    const double* before = step ? alpha + row_of<PADDED>(steps, step - 1) * most : alpha;
    for (int s = threadIdx.x; s < places.count; s += blockDim.x) {
      double sum = s < 2 ? 0 : never();
      if (step) {
        sum = before[s];
        if (s) sum = either(sum, before[s - 1]);
        if (places.jumps(s)) sum = either(sum, before[s - 2]);
      }
      alpha[row * most + s] = sum + ((double)x[row * classes + places.of(s)] - logs[row]);
    }
    __syncthreads();
  }
  double total = never();
  if (length) {
    const double* last = alpha + row_of<PADDED>(steps, length - 1) * most;
    total = labels.length ? either(last[places.count - 1], last[places.count - 2]) : last[0];
  }
  const bool possible = total - total == 0;
  if (threadIdx.x == 0) loss[blockIdx.x] = possible ? (T)-total : (T)0;
  if (!gradient) return;
  __syncthreads();  // all threads have read the total, before its terms are overwritten
  for (int step = length - 1; possible && step >= 0; step--) {
    const long long row = row_of<PADDED>(steps, step);
    double* now = beta + (2LL * blockIdx.x + (step & 1)) * most;
    const double* after = beta + (2LL * blockIdx.x + 1 - (step & 1)) * most;
    for (int s = threadIdx.x; s < places.count; s += blockDim.x) {
      double sum = step == length - 1 && s >= places.count - 2 ? 0 : never();
      if (step < length - 1) {
        sum = after[s];
        if (s + 1 < places.count) sum = either(sum, after[s + 1]);
        if (s + 2 < places.count && places.jumps(s + 2)) sum = either(sum, after[s + 2]);
      }
      now[s] = sum + ((double)x[row * classes + places.of(s)] - logs[row]);
      alpha[row * most + s] = exp(alpha[row * most + s] + sum - total);  // how often paths are there
    }
    __syncthreads();
  }
  // A warp takes a row; the first place of a class adds up all places of it, in their order.
  for (int step = warp; step < (PADDED ? all : steps.length); step += warps) {
    const long long row = row_of<PADDED>(steps, step);
    const bool counts = possible && step < length;
    for (int c = lane; c < classes; c += 32)
      gradient[row * classes + c] = counts ? (T)exp((double)x[row * classes + c] - logs[row]) : (T)0;
    __syncwarp();
    for (int s = lane; counts && s < places.count; s += 32) {
      const int c = places.of(s);
      bool first = c != blank || s == 0;
      for (int k = 1; first && k < s; k += 2) first = places.of(k) != c;
      double often = 0;
      for (int k = s; first && k < places.count; k++)
        if (places.of(k) == c) often += alpha[row * most + k];
      if (first) gradient[row * classes + c] = (T)(exp((double)x[row * classes + c] - logs[row]) - often);
    }
  }
}

// The gradient of each row, by that of its sequence's loss.
template <class T, class I, bool PADDED>
EVERYWHERE void block_ctc_grad(const T* gradient, const T* d_loss, const I* ends, T* d_x, long long* word,
                               volatile long long* noted, int assertion, int all, int classes, int by_times) {
  const Stretch steps = Stretch::of<PADDED>(ends, all, word, noted, assertion);
  const T d = by_times ? d_loss[blockIdx.x] / (T)max(steps.length, 1) : d_loss[blockIdx.x];
  for (int step = 0; step < (PADDED ? all : steps.length); step++) {
    const long long at = row_of<PADDED>(steps, step) * classes;
    for (int c = threadIdx.x; c < classes; c += blockDim.x)
      d_x[at + c] = step < steps.length ? gradient[at + c] * d : (T)0;
  }
}
