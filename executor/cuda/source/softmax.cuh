// Softmax and losses of rows of scores; comes after reduce.cuh and assert.cuh. Labels are one whole number a row:
// `ignored` is that of rows which do not count. Losses refuse any other that is no class.
#pragma once

// The exponential of a score less its row's largest; not below exp(-64), see LEAST_SHIFT in graph/ops/loss.py.
template <class A> EVERYWHERE A power(A shift) { return exp(shift < (A)-64 ? (A)-64 : shift); }

template <class T, class A, int G, int V, int N>
EVERYWHERE void block_softmax(const T* x, T* out, long long rows, int width, int stride) {
  for (long long r = first_row<G>(); r < rows; r += rows_at_once<G>()) {
    const Row<T, G, V, N> row(x, r, width, stride);
    const A most = row.template block_fold<Max, A>(width, [](A v, int) { return v; });
    const A all = row.template block_fold<Sum, A>(width, [=](A v, int) { return power<A>(v - most); });
    const A share = (A)1 / all;
    write_row<A>(row, out, r, width, [=](A v, int) { return power<A>(v - most) * share; });
  }
}

// out * (d - sum(d * out))
template <class T, class A, int G, int V, int N>
EVERYWHERE void block_softmax_grad(const T* out, const T* d_out, T* d_x, long long rows, int width, int stride) {
  for (long long r = first_row<G>(); r < rows; r += rows_at_once<G>()) {
    const Row<T, G, V, N> row(out, r, width, stride), slope(d_out, r, width, stride);
    const A all = block_fold<Sum, A>(row, slope, width, [](A v, A d, int) { return v * d; });
    write_row<A>(row, slope, d_x, r, width, [=](A v, A d, int) { return v * (d - all); });
  }
}

// The largest score of a row and the sum of exp(x - largest). A long row is read once: when a larger score comes, what
// was added up before is scaled.
template <class A, class T, int G, int V, int N>
EVERYWHERE A block_sum_exp(const Row<T, G, V, N>& row, int width, A& most) {
  if constexpr (G == 1 || N > 0) {
    const A largest = most = row.template block_fold<Max, A>(width, [](A v, int) { return v; });
    return row.template block_fold<Sum, A>(width, [=](A v, int) { return exp(v - largest); });
  } else {
    const A least = Limits<A>::least();
    A own = least, sum = 0;
    over_row<G, V, N>(width, [&](int i, int at) {
      const Vec<T, V> v = row.get(i, at);
      A larger = own;
#pragma unroll
      for (int j = 0; j < V; j++) larger = Max::join(larger, (A)wide(v.at[j]));
      const A from = larger == least ? (A)0 : larger;  // infinities have no difference
      sum *= exp(own - from);
#pragma unroll
      for (int j = 0; j < V; j++) sum += exp((A)wide(v.at[j]) - from);
      own = larger;
    });
    most = block_or_warp_join<G, Max>(own);
    return block_or_warp_join<G, Sum>(own == least ? sum : sum * exp(own - most));
  }
}

// Write a row's loss, log(sum exp(x - max)) - (x - max)[label]: no logarithm of a rounded softmax. Return the sum.
template <class A, class T, int G, int V, int N, class R>
EVERYWHERE A block_row_loss(const Row<T, G, V, N>& row, long long label, R* loss, A& most, long long* word,
                            volatile long long* noted, int assertion, int width, long long ignored) {
  const bool counts = label != ignored, known = counts && label >= 0 && label < width;
  const A score = known ? (A)wide(row.from[label * row.stride]) : (A)0;
  if constexpr (G == 32) __syncwarp();  // softmax may take the scores' place; blocks have barriers before that
  const A all = block_sum_exp<A>(row, width, most);
  if (thread_of_group<G>() == 0) {
    *loss = element<R>(known ? log(all) - (score - most) : (A)0);
    if (counts && !known) refuse(word, noted, assertion, label);
  }
  return all;
}

// The losses, and softmax unless it is null.
template <class T, class A, class I, class R, int G, int V, int N>
EVERYWHERE void block_cross_entropy_of_scores(const T* x, const I* labels, T* softmax, R* loss, long long* word,
                                              volatile long long* noted, int assertion, long long rows, int width,
                                              int stride, long long ignored) {
  for (long long r = first_row<G>(); r < rows; r += rows_at_once<G>()) {
    const Row<T, G, V, N> row(x, r, width, stride);
    A most;
    const A all = block_row_loss<A>(row, labels[r], loss + r, most, word, noted, assertion, width, ignored);
    if (softmax) {
      const A share = (A)1 / all;
      write_row<A>(row, softmax, r, width, [=](A v, int) { return power<A>(v - most) * share; });
    }
  }
}

// The loss of scores, and the logarithm of a row's sum of exponentials, from which its gradient is made.
template <class T, class A, class I, class R, int G, int V, int N>
EVERYWHERE void block_score_loss(const T* x, const I* labels, R* loss, A* log_sum, long long* word,
                                 volatile long long* noted, int assertion, long long rows, int width, int stride,
                                 long long ignored) {
  for (long long r = first_row<G>(); r < rows; r += rows_at_once<G>()) {
    const Row<T, G, V, N> row(x, r, width, stride);
    A most;
    const A all = block_row_loss<A>(row, labels[r], loss + r, most, word, noted, assertion, width, ignored);
    if (thread_of_group<G>() == 0) log_sum[r] = most + log(all);
  }
}

// (exp(x - log_sum) - label) * d
template <class T, class A, class I, class R, class L, int G, int V, int N>
EVERYWHERE void score_loss_grad(const T* x, const I* labels, const L* log_sum, const R* d_loss, T* d_x, long long rows,
                                int width, int stride, long long ignored) {
  for (long long r = first_row<G>(); r < rows; r += rows_at_once<G>()) {
    const Row<T, G, V, N> row(x, r, width, stride);
    const long long label = labels[r];
    const bool counts = label != ignored;
    const A size = wide(log_sum[r]), d = wide(d_loss[r]);
    write_row<A>(row, d_x, r, width, [=](A v, int column) {
      return counts ? (exp(v - size) - (A)(column == label)) * d : (A)0 * d;
    });
  }
}

// The same for labels that are weights of the classes.
template <class T, class A, class R, int G, int V, int N>
EVERYWHERE void block_soft_cross_entropy_of_scores(const T* x, const T* weights, T* softmax, R* loss, long long rows,
                                                   int width, int stride) {
  for (long long r = first_row<G>(); r < rows; r += rows_at_once<G>()) {
    const Row<T, G, V, N> row(x, r, width, stride), weight(weights, r, width, stride);
    const A most = row.template block_fold<Max, A>(width, [](A v, int) { return v; });
    const A all = row.template block_fold<Sum, A>(width, [=](A v, int) { return exp(v - most); });
    const A size = log(all);
    const A lost = block_fold<Sum, A>(row, weight, width, [=](A v, A w, int) { return (size - (v - most)) * w; });
    if (thread_of_group<G>() == 0) loss[r] = element<R>(lost);
    if (softmax) {
      const A share = (A)1 / all;
      write_row<A>(row, softmax, r, width, [=](A v, int) { return power<A>(v - most) * share; });
    }
  }
}

// (softmax - label) * d
template <class T, class A, class I, class R, int G, int V, int N>
EVERYWHERE void cross_entropy_of_scores_grad(const T* softmax, const I* labels, const R* d_loss, T* d_x,
                                             long long rows, int width, int stride, long long ignored) {
  for (long long r = first_row<G>(); r < rows; r += rows_at_once<G>()) {
    const Row<T, G, V, N> row(softmax, r, width, stride);
    const long long label = labels[r];
    const bool counts = label != ignored;
    const A d = wide(d_loss[r]);
    write_row<A>(row, d_x, r, width, [=](A v, int column) {
      return counts ? (v - (A)(column == label)) * d : (A)0 * d;
    });
  }
}
template <class T, class A, class R, int G, int V, int N>
EVERYWHERE void soft_cross_entropy_of_scores_grad(const T* softmax, const T* weights, const R* d_loss, T* d_x,
                                                  long long rows, int width, int stride) {
  for (long long r = first_row<G>(); r < rows; r += rows_at_once<G>()) {
    const Row<T, G, V, N> row(softmax, r, width, stride), weight(weights, r, width, stride);
    const A d = wide(d_loss[r]);
    write_row<A>(row, weight, d_x, r, width, [=](A v, A w, int) { return (v - w) * d; });
  }
}

// ---- of probabilities --------------------------------------------------------------------------------------
template <class A> EVERYWHERE A log_at_least(A x) {  // log(0) is -1e20
  const A y = log(x);
  return y < (A)-1e20 ? (A)-1e20 : y;
}

// One thread a row: the loss, and (if wanted) the probability that it is of.
template <class T, class A, class I>
EVERYWHERE void cross_entropy_at_label(const T* x, const I* labels, T* loss, T* match, long long* word,
                                       volatile long long* noted, int assertion, long long rows, int width,
                                       long long ignored) {
  for (long long r = thread_index(); r < rows; r += thread_count()) {
    const long long label = labels[r];
    const bool counts = label != ignored, known = label >= 0 && label < width;
    const A picked = counts && known ? (A)wide(x[r * width + label]) : (A)1;
    if (counts && !known) refuse(word, noted, assertion, label);
    if (match) match[r] = element<T>(picked);
    if (loss) loss[r] = element<T>(counts ? -log_at_least<A>(picked) : (A)0);
  }
}
template <class T, class A, int G, int V, int N>
EVERYWHERE void block_soft_cross_entropy(const T* x, const T* weights, T* loss, long long rows, int width, int stride) {
  for (long long r = first_row<G>(); r < rows; r += rows_at_once<G>()) {
    const Row<T, G, V, N> row(x, r, width, stride), weight(weights, r, width, stride);
    const A lost = block_fold<Sum, A>(row, weight, width, [](A v, A w, int) { return log_at_least<A>(v) * w; });
    if (thread_of_group<G>() == 0) loss[r] = element<T>(-lost);
  }
}

// -d / x at the label, else 0; x is the row's, or (PICKED) the probability at the label.
template <class T, class A, class I, bool PICKED, int G, int V, int N>
EVERYWHERE void cross_entropy_grad(const T* x, const I* labels, const T* d_loss, T* d_x, long long rows, int width,
                                   long long ignored) {
  for (long long r = first_row<G>(); r < rows; r += rows_at_once<G>()) {
    const long long label = labels[r];
    const bool counts = label != ignored, known = label >= 0 && label < width;
    A slope = 0;
    if (counts && known) slope = -(A)wide(d_loss[r]) / (A)wide(x[PICKED ? r : r * width + label]);
    over_row<G, V, N>(width, [&](int, int at) {
      Vec<T, V> made;
#pragma unroll
      for (int j = 0; j < V; j++) made.at[j] = element<T>(at + j == label ? slope : (A)0);
      store_vec<V>(d_x + r * width + at, made);
    });
  }
}
template <class T, class A, int G, int V, int N>
EVERYWHERE void soft_cross_entropy_grad(const T* x, const T* weights, const T* d_loss, T* d_x, long long rows,
                                        int width, int stride) {
  for (long long r = first_row<G>(); r < rows; r += rows_at_once<G>()) {
    const Row<T, G, V, N> row(x, r, width, stride), weight(weights, r, width, stride);
    const A d = wide(d_loss[r]);
    write_row<A>(row, weight, d_x, r, width, [=](A v, A w, int) { return -(w / v * d); });
  }
}
