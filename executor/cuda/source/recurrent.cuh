// LSTM and GRU over sequences: a block takes one sequence through all its steps, so only its own threads wait for
// each other, and how many steps there are is read from the offsets. Thread i has cells i, i + blockDim.x, ...
// of each step; weights are read with neighbours side by side. Legend: `width` cells, `back` numbers that a step
// reads of the one before (an LSTM's projection, else its cells).
#pragma once

// A limit of 0 is none.
template <class T> EVERYWHERE T clipped(T x, T limit) {
  return limit == 0 ? x : x > limit ? limit : x < -limit ? -limit : x;
}
template <class T> EVERYWHERE T clipped_slope(T x, T limit) {
  return limit == 0 || (x < limit && x > -limit) ? (T)1 : (T)0;
}

// The order of rows by time, as `array/time_steps.py` has it: `order` of sequences, longest first, and where the
// rows of each step start. Offsets that fall were refused where they came from: their sequences have no rows.
template <class I>
EVERYWHERE void order_by_time(const I* ends, int* order, int* starts, long long* word, volatile long long* noted,
                              int assertion, int rows, int count) {
  if (thread_index() == 0 && ends[count] != rows) refuse(word, noted, assertion, ends[count]);
  for (long long k = thread_index(); k < count + rows; k += thread_count()) {
    const int one = (int)k, step = (int)(k - count);
    const int own = one < count ? length_of(ends, one, rows) : 0;
    int ahead = 0;
    for (int other = 0; other < count; other++) {
      const int length = length_of(ends, other, rows);
      ahead += one < count ? length > own || (length == own && other < one) : min(length, step);
    }
    if (one < count) order[ahead] = one;
    else starts[step] = ahead;
  }
}

// The steps of the sequence that a block takes.
struct Walk {
  const int* starts;
  int rank, sequence, begin, length, rows;
  bool reverse;
  template <class I>
  EVERYWHERE Walk(const I* ends, const int* order, const int* starts, int rows, bool reverse)
      : starts(starts), rank(blockIdx.x), sequence(order[rank]), begin(offset(ends, sequence, rows)),
        length(length_of(ends, sequence, rows)), rows(rows), reverse(reverse) {}
  EVERYWHERE long long row(int step) const { return begin + (reverse ? length - 1 - step : step); }
  // By time; of sequences that overlap, which were refused, there are more rows than places.
  EVERYWHERE long long place(int step) const { return min((long long)starts[step] + rank, rows - 1LL); }
  // What step `step` reads of the one before: a row of `by_row`, of the first states, or nothing.
  template <class T> EVERYWHERE const T* before(int step, const T* by_row, const T* first, int width) const {
    return step ? by_row + row(step - 1) * width : first ? first + (long long)sequence * width : 0;
  }
};

// sums[m] += the row `left` times column m * apart of `right`, which begins at the thread's own.
template <int M, class T>
EVERYWHERE void add_products(T (&sums)[M], const T* left, const T* right, int inner, int ld, int apart) {
#pragma unroll 8
  for (int k = 0; k < inner; k++) {
    const T factor = left[k];
#pragma unroll
    for (int m = 0; m < M; m++) sums[m] += factor * right[(long long)k * ld + m * apart];
  }
}
template <class T> EVERYWHERE T row_times(const T* left, const T* right, int inner, int ld) {
  T sums[4] = {};  // of every fourth row, so that additions do not wait for each other
  const int whole = inner / 4 * 4;
#pragma unroll 4
  for (int k = 0; k < whole; k += 4)
#pragma unroll
    for (int m = 0; m < 4; m++) sums[m] += left[k + m] * right[(long long)(k + m) * ld];
  for (int k = whole; k < inner; k++) sums[0] += left[k] * right[(long long)k * ld];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// ---- LSTM ------------------------------------------------------------------------------------------------
// Gates: candidate, input, forget, output. `gates`, `active` and `hidden` lie by time, `cell` and `fed` by row;
// without a projection, `fed` is what goes out, and `hidden` is null. `Cells` is generated: what one cell computes.
template <class T, class I, class Cells, class Projected>
EVERYWHERE void block_lstm(const T* x, const T* weight, const T* bias, const T* h0, const T* c0, const T* proj,
                           const I* ends, const int* order, const int* starts, T* gates, T* active, T* cell, T* hidden,
                           T* fed, int rows, int width, int back, int reverse, T proj_clip) {
  const Walk walk(ends, order, starts, rows, reverse);
  for (int step = 0; step < walk.length; step++) {
    const long long row = walk.row(step), place = walk.place(step);
    const T* last = walk.before<T>(step, fed, h0, back);
    const T* kept = walk.before<T>(step, cell, c0, width);
    T* out = hidden ? hidden + place * width : fed + row * width;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
      T gate[4], w[3] = {};
      for (int k = 0; k < 4; k++) gate[k] = x[row * 4 * width + k * width + i] + bias[k * width + i];
      if (last) add_products(gate, last, weight + i, back, 4 * width, width);
      if (Cells::PEEPHOLES)
        for (int k = 0; k < 3; k++) w[k] = bias[(4 + k) * width + i];
      Cells::step(gate, w, kept ? kept[i] : (T)0, cell[row * width + i], active[place * width + i], out[i]);
      for (int k = 0; k < 4; k++) gates[(place * 4 + k) * width + i] = gate[k];
    }
    __syncthreads();
    if (!hidden) continue;
    for (int p = threadIdx.x; p < back; p += blockDim.x)
      fed[row * back + p] = clipped(Projected::of(row_times(out, proj + p, width, back)), proj_clip);
    __syncthreads();
  }
}

// Back through the steps: `d_x` are the slopes of gates' sums, by row; `d_h0` and `d_c0` those of what a step reads
// of the one before, of which `before` gets the part that was fed back. `turned` and `proj_turned` are transposes;
// `d_projected` are the slopes of the projection's products, by time, and `holes` what adds up to those of peepholes.
template <class T, class I, class Cells, class Projected>
EVERYWHERE void block_lstm_grad(const T* gates, const T* active, const T* cell, const T* fed, const T* turned,
                                const T* bias, const T* h0, const T* c0, const T* proj_turned, const T* d_fed,
                                const T* d_cells, const I* ends, const int* order, const int* starts, T* d_x, T* d_h0,
                                T* d_c0, T* before, T* holes, T* d_projected, int rows, int width, int back,
                                int reverse, T proj_clip) {
  const Walk walk(ends, order, starts, rows, reverse);
  T* d_last = d_h0 + (long long)walk.sequence * back;
  T* d_kept = d_c0 + (long long)walk.sequence * width;
  for (int p = threadIdx.x; p < back; p += blockDim.x) d_last[p] = 0;
  for (int i = threadIdx.x; i < width; i += blockDim.x) d_kept[i] = 0;
  for (int step = walk.length - 1; step >= 0; step--) {
    const long long row = walk.row(step), place = walk.place(step);
    const T* last = walk.before(step, fed, h0, back);
    const T* kept = walk.before(step, cell, c0, width);
    for (int p = threadIdx.x; p < back; p += blockDim.x) {
      if (d_fed) d_last[p] += d_fed[row * back + p];
      before[row * back + p] = last ? last[p] : (T)0;
      if (!d_projected) continue;
      const T r = fed[row * back + p];
      d_projected[place * back + p] = Projected::grad(r, d_last[p] * clipped_slope(r, proj_clip));
    }
    if (d_projected) __syncthreads();
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
      const T d = d_projected ? row_times(d_projected + place * back, proj_turned + i, back, width) : d_last[i];
      const T c = kept ? kept[i] : (T)0, s = cell[row * width + i];
      T gate[4], d_gate[4], w[3] = {}, d_s = d_kept[i];
      for (int k = 0; k < 4; k++) gate[k] = gates[(place * 4 + k) * width + i];
      if (Cells::PEEPHOLES)
        for (int k = 0; k < 3; k++) w[k] = bias[(4 + k) * width + i];
      if (d_cells) d_s += d_cells[row * width + i];
      Cells::back(gate, w, c, s, active[place * width + i], d, d_s, d_gate);
      for (int k = 0; k < 4; k++) d_x[(row * 4 + k) * width + i] = d_gate[k];
      if (Cells::PEEPHOLES) {
        T* hole = holes + row * 3 * width + i;
        hole[0] = c * d_gate[1], hole[width] = c * d_gate[2], hole[2 * width] = s * d_gate[3];
      }
      d_kept[i] = d_s;
    }
    __syncthreads();
    for (int p = threadIdx.x; p < back; p += blockDim.x)
      d_last[p] = row_times(d_x + row * 4 * width, turned + p, 4 * width, back);
  }
}

// ---- GRU -------------------------------------------------------------------------------------------------
// Gates: update, reset, candidate. `gates`, `after_reset` and `by_time` lie by time, `hidden` by row. `pair` are
// the weights of update and reset, `single` those of the candidate. With update u, candidate c and h from before:
// (1 - u) h + u c, or u h + (1 - u) c. `Cells` is generated: what one cell computes.
template <class T, class I, class Cells>
EVERYWHERE void block_gru(const T* x, const T* pair, const T* single, const T* bias, const T* h0, const I* ends,
                          const int* order, const int* starts, T* gates, T* after_reset, T* by_time, T* hidden,
                          int rows, int width, int reverse) {
  const Walk walk(ends, order, starts, rows, reverse);
  for (int step = 0; step < walk.length; step++) {
    const long long row = walk.row(step), place = walk.place(step);
    const T* last = walk.before<T>(step, hidden, h0, width);
    const T* from = x + row * 3 * width;
    T* gate = gates + place * 3 * width;
    T* reset_last = after_reset + place * width;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
      T sums[2], products[2] = {};
      for (int k = 0; k < 2; k++) sums[k] = from[k * width + i] + (bias ? bias[k * width + i] : (T)0);
      if (last) add_products(products, last, pair + i, width, 2 * width, width);
      Cells::gates(last ? last[i] : (T)0, products[1], products[0], sums[0], sums[1], reset_last[i]);
      gate[i] = sums[0], gate[width + i] = sums[1];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
      const T product = last ? row_times(reset_last, single + i, width, width) : (T)0;
      T c = from[2 * width + i] + (bias ? bias[2 * width + i] : (T)0), out;
      Cells::step(last ? last[i] : (T)0, product, gate[i], c, out);
      gate[2 * width + i] = c;
      by_time[place * width + i] = out;
      hidden[row * width + i] = out;
    }
    __syncthreads();
  }
}

// Back through the steps; `before` and `reset_before` get what the products read, by row.
template <class T, class I, class Cells>
EVERYWHERE void block_gru_grad(const T* gates, const T* after_reset, const T* hidden, const T* pair_turned,
                               const T* single_turned, const T* h0, const T* d_hidden, const I* ends, const int* order,
                               const int* starts, T* d_x, T* d_h0, T* before, T* reset_before, int rows, int width,
                               int reverse) {
  const Walk walk(ends, order, starts, rows, reverse);
  T* d_last = d_h0 + (long long)walk.sequence * width;
  for (int i = threadIdx.x; i < width; i += blockDim.x) d_last[i] = 0;
  for (int step = walk.length - 1; step >= 0; step--) {
    const long long row = walk.row(step), place = walk.place(step);
    const T* last = walk.before(step, hidden, h0, width);
    const T* gate = gates + place * 3 * width;
    T* to = d_x + row * 3 * width;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
      const T h = last ? last[i] : (T)0, d = d_hidden[row * width + i];
      Cells::step_back(h, gate[2 * width + i], d, gate[i], to[i], to[2 * width + i], d_last[i]);
      before[row * width + i] = h;
      reset_before[row * width + i] = after_reset[place * width + i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
      const T d = last ? row_times(to + 2 * width, single_turned + i, width, width) : (T)0;
      Cells::gates_back(last ? last[i] : (T)0, d, gate[width + i], to[width + i], d_last[i]);
    }
    __syncthreads();
    for (int i = threadIdx.x; last && i < width; i += blockDim.x)
      d_last[i] += row_times(to, pair_turned + i, 2 * width, width);
  }
}

// ---- LSTM with attention ----------------------------------------------------------------------------------
// Each step attends to all rows of its sequence: `added` is what a row adds to its score, `share` its part in the
// last step. `pooled` [sequences, width] is the mean that a step reads, `gates` [sequences, 4 * cells]: forget, input,
// output, candidate. `last_pooled` and `last_gates` are those of the last step of all.
template <class T, class I, class Gate, class Active, class Candidate>
EVERYWHERE void block_attention_lstm(const T* x, const T* c0, const T* h0, const T* attention, const T* shift,
                                     const T* scale, const T* scaled_shift, const T* weight, const T* bias,
                                     const I* ends, T* hidden, T* cell, T* added, T* share, T* pooled, T* gates,
                                     T* last_pooled, T* last_gates, long long* word, volatile long long* noted,
                                     int assertion, int rows, int count, int width, int cells) {
  if (thread_index() == 0 && ends[count] != rows) refuse(word, noted, assertion, ends[count]);
  const int sequence = blockIdx.x, begin = offset(ends, sequence, rows), end = offset(ends, sequence + 1, rows);
  T* mean = pooled + (long long)sequence * width;
  T* gate = gates + (long long)sequence * 4 * cells;
  for (int r = begin + threadIdx.x; r < end; r += blockDim.x)
    added[r] = row_times(x + (long long)r * width, attention, width, 1) + (shift ? *shift : (T)0);
  for (int row = begin; row < end; row++) {
    const T* kept = row > begin ? cell + (row - 1LL) * cells : c0 + (long long)sequence * cells;
    const T* last = row > begin ? hidden + (row - 1LL) * cells : h0 ? h0 + (long long)sequence * cells : 0;
    T of_cells = 0, largest = Max::none<T>(), total = 0;
    for (int i = threadIdx.x; i < cells; i += blockDim.x) of_cells += kept[i] * attention[width + i];
    of_cells = block_join<Sum>(of_cells);
    for (int r = begin + threadIdx.x; r < end; r += blockDim.x) {
      T score = Relu::of(added[r] + of_cells);
      if (scale) score = Relu::of(score * *scale + (scaled_shift ? *scaled_shift : (T)0));
      share[r] = score;
      largest = Max::join(largest, score);
    }
    largest = block_join<Max>(largest);
    for (int r = begin + threadIdx.x; r < end; r += blockDim.x) total += share[r] = exp(share[r] - largest);
    total = block_join<Sum>(total);
    for (int r = begin + threadIdx.x; r < end; r += blockDim.x) share[r] /= total;
    __syncthreads();
    for (int m = threadIdx.x; m < width; m += blockDim.x)
      mean[m] = row_times(share + begin, x + (long long)begin * width + m, end - begin, width);
    __syncthreads();
    for (int k = threadIdx.x; k < 4 * cells; k += blockDim.x) {
      T sum = bias[k] + row_times(mean, weight + (long long)cells * 4 * cells + k, width, 4 * cells);
      if (last) sum += row_times(last, weight + k, cells, 4 * cells);
      gate[k] = k < 3 * cells ? Gate::of(sum) : Candidate::of(sum);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < cells; i += blockDim.x) {
      const T c = gate[i] * kept[i] + gate[cells + i] * gate[3 * cells + i];
      cell[(long long)row * cells + i] = c;
      hidden[(long long)row * cells + i] = gate[2 * cells + i] * Active::of(c);
    }
    __syncthreads();
  }
  if (begin == end || end != rows) return;
  for (int m = threadIdx.x; last_pooled && m < width; m += blockDim.x) last_pooled[m] = mean[m];
  for (int k = threadIdx.x; last_gates && k < 4 * cells; k += blockDim.x) last_gates[k] = gate[k];
}
