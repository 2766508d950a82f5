// Layer norm (rows) and batch norm (columns, or planes of channels); comes after reduce.cuh and activation.cuh.
#pragma once

// ---- layer norm --------------------------------------------------------------------------------------------
// P is the type of scale and shift, S that of the statistics; null pointers stand for what nobody gave or wants.
template <class P, class A, int V> EVERYWHERE void load_wide(const P* from, A (&to)[V], A otherwise) {
  if (from) {
    const Vec<P, V> v = load_vec<V>(from);
#pragma unroll
    for (int j = 0; j < V; j++) to[j] = wide(v.at[j]);
  } else {
#pragma unroll
    for (int j = 0; j < V; j++) to[j] = otherwise;
  }
}

template <class T, class P, class S, class A, int G, int V, int N>
EVERYWHERE void block_layer_norm(const T* x, const T* z, T* sum, const P* scale, const P* shift, T* y, S* means,
                                 S* variances, long long rows, int width, A epsilon) {
  const A part = (A)1 / (A)width;
  for (long long r = first_row<G>(); r < rows; r += rows_at_once<G>()) {
    Row<T, G, V, N> row(x, r, width, 1);
    if (z) {  // the row is the sum, as rounded; of a long one a thread reads again what it wrote
      over_row<G, V, N>(width, [&](int i, int at) {
        const Vec<T, V> v = row.get(i, at), w = load_vec<V>(z + r * width + at);
        Vec<T, V> made;
#pragma unroll
        for (int j = 0; j < V; j++) made.at[j] = element<T>((A)wide(v.at[j]) + (A)wide(w.at[j]));
        store_vec<V>(sum + r * width + at, made);
        if constexpr (N > 0) row.held[i] = made;
      });
      row.from = sum + r * width;
    }
    const A mean = row.template block_fold<Sum, A>(width, [](A v, int) { return v; }) * part;
    const A variance =
        row.template block_fold<Sum, A>(width, [=](A v, int) { return (v - mean) * (v - mean); }) * part;
    const A inverse = (A)1 / sqrt(variance + epsilon);
    if (thread_of_group<G>() == 0) {
      if (means) means[r] = element<S>(mean);
      if (variances) variances[r] = element<S>(variance);
    }
    if (!y) continue;
    over_row<G, V, N>(width, [&](int i, int at) {
      const Vec<T, V> v = row.get(i, at);
      A by[V], plus[V];
      load_wide(scale ? scale + at : scale, by, (A)1);
      load_wide(shift ? shift + at : shift, plus, (A)0);
      Vec<T, V> made;
#pragma unroll
      for (int j = 0; j < V; j++) made.at[j] = element<T>(((A)wide(v.at[j]) - mean) * inverse * by[j] + plus[j]);
      store_vec<V>(y + r * width + at, made);
    });
  }
}

// d_x = (g - mean(g) - hat * mean(g * hat)) / deviation, g = d_y * scale. With SUMS (rows in registers), a block
// also adds up d_y * hat and d_y over its rows, into its row of `by_shift` and `by_scale`. `addend` (may be null) is
// added to d_x.
template <class T, class P, class S, class A, bool SUMS, int G, int V, int N>
EVERYWHERE void block_layer_norm_grad(const T* x, const T* d_y, const S* means, const S* variances, const P* scale,
                                      const T* addend, T* d_x, A* by_shift, A* by_scale, long long rows, int width,
                                      A epsilon) {
  constexpr int M = SUMS ? N : 1;
  const A part = (A)1 / (A)width;
  A scaled[M][V] = {}, shifted[M][V] = {};
  for (long long r = first_row<G>(); r < rows; r += rows_at_once<G>()) {
    const Row<T, G, V, N> row(x, r, width, 1), slope(d_y, r, width, 1);
    const A mean = wide(means[r]), inverse = (A)1 / sqrt((A)wide(variances[r]) + epsilon);
    A plain = 0, along = 0;
    over_row<G, V, N>(width, [&](int i, int at) {
      const Vec<T, V> v = row.get(i, at), d = slope.get(i, at);
      A by[V];
      load_wide(scale ? scale + at : scale, by, (A)1);
#pragma unroll
      for (int j = 0; j < V; j++) {
        const A hat = ((A)wide(v.at[j]) - mean) * inverse, g = (A)wide(d.at[j]);
        if constexpr (SUMS) {
          scaled[i][j] += g * hat;
          shifted[i][j] += g;
        }
        plain += g * by[j];
        along += g * by[j] * hat;
      }
    });
    if (!d_x) continue;
    plain = block_or_warp_join<G, Sum>(plain) * part;
    along = block_or_warp_join<G, Sum>(along) * part;
    over_row<G, V, N>(width, [&](int i, int at) {
      const Vec<T, V> v = row.get(i, at), d = slope.get(i, at);
      A by[V];
      load_wide(scale ? scale + at : scale, by, (A)1);
      Vec<T, V> made, more;
      if (addend) more = load_vec<V>(addend + r * width + at);
#pragma unroll
      for (int j = 0; j < V; j++) {
        const A hat = ((A)wide(v.at[j]) - mean) * inverse;
        A value = ((A)wide(d.at[j]) * by[j] - plain - hat * along) * inverse;
        if (addend) value += (A)wide(more.at[j]);
        made.at[j] = element<T>(value);
      }
      store_vec<V>(d_x + r * width + at, made);
    });
  }
  if constexpr (SUMS) {
    A* const to_scale = by_scale + (long long)blockIdx.x * width;
    A* const to_shift = by_shift + (long long)blockIdx.x * width;
    if constexpr (G != 32) {
      over_row<G, V, N>(width, [&](int i, int at) {
#pragma unroll
        for (int j = 0; j < V; j++) to_scale[at + j] = scaled[i][j], to_shift[at + j] = shifted[i][j];
      });
    } else {  // warps have rows of their own: add them up, a vector of columns at a time
      __shared__ A kept[2][8][32 * V];
      const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
#pragma unroll
      for (int i = 0; i < N; i++) {
        __syncthreads();
#pragma unroll
        for (int j = 0; j < V; j++)
          kept[0][warp][lane * V + j] = scaled[i][j], kept[1][warp][lane * V + j] = shifted[i][j];
        __syncthreads();
        for (int c = threadIdx.x; c < 32 * V && i * 32 * V + c < width; c += blockDim.x) {
          A all = 0, plain = 0;
          for (int w = 0; w < warps; w++) all += kept[0][w][c], plain += kept[1][w][c];
          to_scale[i * 32 * V + c] = all, to_shift[i * 32 * V + c] = plain;
        }
      }
    }
  }
}

// ---- tiles of batch norm -----------------------------------------------------------------------------------
// [images, channels, plane]: a block has the channel blockIdx.x, and of its vectors the chunk blockIdx.y.
// `multiplier` and `bits` divide by the vectors of a plane: k / per = (k * multiplier / 2^32 + k) / 2^bits.
template <int V_> struct Planes {
  static constexpr int V = V_, LX = 1, W = 1, LY = 256;
  long long next, end;
  int channels, plane, bits;
  unsigned multiplier;
  EVERYWHERE Planes(long long rows, int channels, long long chunk, int plane, unsigned multiplier, int bits)
      : channels(channels), plane(plane), bits(bits), multiplier(multiplier) {
    const long long begin = blockIdx.y * chunk;
    end = min(begin + chunk, rows);
    next = begin + threadIdx.x;
  }
  EVERYWHERE long long at(long long k) const {
    const unsigned image = (__umulhi((unsigned)k, multiplier) + (unsigned)k) >> bits;
    return ((long long)image * (channels - 1) + blockIdx.x) * plane + k * V;
  }
  EVERYWHERE int channel(int) const { return blockIdx.x; }
  EVERYWHERE bool writes() const { return threadIdx.x == 0; }
};

// Join what a thread has of its vector's columns, then down the tile; the writing thread gets the result.
template <class Tile, class M> EVERYWHERE void block_join_tile(M (&v)[Tile::V]) {
  if constexpr (Tile::W == Tile::V) block_join_down<M, Tile::LX, Tile::V>(v);
  else {
    M all[1] = {v[0]};
#pragma unroll
    for (int j = 1; j < Tile::V; j++) all[0] = M::join(all[0], v[j]);
    block_join_down<M, Tile::LX, 1>(all);
    v[0] = all[0];
  }
}

// Do that, and call write(place, result) for each channel: a chunk's results stand `width` after those before.
template <class Tile, class M, class F>
EVERYWHERE void block_write_tile(M (&v)[Tile::V], const Tile& tile, int width, F write) {
  block_join_tile<Tile>(v);
  if (!tile.writes()) return;
#pragma unroll
  for (int j = 0; j < Tile::W; j++) write((long long)blockIdx.y * width + tile.channel(j), v[j]);
}

template <class P, class A, class Tile> EVERYWHERE void load_channels(const P* from, A (&to)[Tile::V], const Tile& tile) {
#pragma unroll
  for (int j = 0; j < Tile::V; j++) to[j] = tile.next < tile.end ? (A)wide(from[tile.channel(j)]) : (A)0;
}

// ---- statistics --------------------------------------------------------------------------------------------
// Chan, Golub and LeVeque's way to put parts together: count, mean, and sum of squared distances from it.
template <class A> struct Moments {
  A count, mean, squares;
  static EVERYWHERE Moments join(const Moments& a, const Moments& b) {
    const A count = a.count + b.count;
    if (count == (A)0) return a;
    const A apart = b.mean - a.mean, share = b.count / count;
    return {count, a.mean + apart * share, a.squares + b.squares + apart * apart * a.count * share};
  }
};

// A chunk's moments of each channel. A thread adds up distances from the first element that it meets.
template <class T, class A, class Tile>
EVERYWHERE void block_moments(const T* x, A* means, A* squares, int channels, const Tile& tile) {
  constexpr int V = Tile::V;
  A from[V] = {}, plain[V] = {}, square[V] = {};
  long long met = 0;
  if (tile.next < tile.end) {
    const Vec<T, V> v = load_vec<V>(x + tile.at(tile.next));
#pragma unroll
    for (int j = 0; j < V; j++) from[j] = wide(v.at[j]);
  }
#pragma unroll 4
  for (long long k = tile.next; k < tile.end; k += tile.LY) {
    const Vec<T, V> v = load_vec<V>(x + tile.at(k));
#pragma unroll
    for (int j = 0; j < V; j++) {
      const A apart = (A)wide(v.at[j]) - from[j];
      plain[j] += apart;
      square[j] += apart * apart;
    }
    met++;
  }
  Moments<A> found[V];
  const A share = met ? (A)1 / (A)met : (A)0;
#pragma unroll
  for (int j = 0; j < V; j++)
    found[j] = {(A)met, from[j] + plain[j] * share, square[j] - plain[j] * plain[j] * share};
  block_write_tile(found, tile, channels, [=](long long to, const Moments<A>& all) {
    means[to] = all.mean;
    squares[to] = all.squares;
  });
}

// Put the chunks' moments together, 8 channels a block; `size` elements of a channel are in a chunk, `total` in
// all. Thread (x, 0) has the result for its channel, and true.
template <class A>
EVERYWHERE bool block_put_together(const A* means, const A* squares, int chunks, int channels, long long size,
                                   long long total, Moments<A>& found, int& channel) {
  constexpr int LX = 8, LY = 256 / LX;
  channel = blockIdx.x * LX + threadIdx.x % LX;
  Moments<A> mine[1] = {{0, 0, 0}};
  if (channel < channels) {
#pragma unroll 4
    for (int k = threadIdx.x / LX; k < chunks; k += LY) {
      const A count = (A)min(size, total - k * size);
      const long long at = (long long)k * channels + channel;
      mine[0] = Moments<A>::join(mine[0], {count, means[at], squares[at]});
    }
  }
  block_join_down<Moments<A>, LX, 1>(mine);
  found = mine[0];
  return threadIdx.x < LX && channel < channels;
}

// What a channel's statistics lead to: running ones, saved ones, and scale / deviation for what follows.
template <class P, class A> struct Channel {
  const P *scale, *running_mean, *running_variance;
  P *mean_out, *variance_out, *saved_mean, *saved_inverse;
  A* slope;
  EVERYWHERE void learnt(int c, A mean, A variance, A momentum, A epsilon) const {
    if (mean_out) mean_out[c] = element<P>(momentum * (A)wide(running_mean[c]) + ((A)1 - momentum) * mean);
    if (variance_out)
      variance_out[c] = element<P>(momentum * (A)wide(running_variance[c]) + ((A)1 - momentum) * variance);
    save(c, mean, variance, epsilon);
  }
  EVERYWHERE void save(int c, A mean, A variance, A epsilon) const {
    const A inverse = (A)1 / sqrt(variance + epsilon);
    if (saved_mean) saved_mean[c] = element<P>(mean);
    if (saved_inverse) saved_inverse[c] = element<P>(inverse);
    slope[c] = inverse * (A)wide(scale[c]);
  }
};

template <class P, class A>
EVERYWHERE void block_learn(const A* means, const A* squares, const Channel<P, A>& to, int chunks, int channels,
                            long long size, long long total, A momentum, A epsilon) {
  Moments<A> found;
  int c;
  if (block_put_together(means, squares, chunks, channels, size, total, found, c))
    to.learnt(c, found.mean, found.squares / (A)max(total, 1LL), momentum, epsilon);
}
// Use the running statistics as they are.
template <class P, class A> EVERYWHERE void use_running(const Channel<P, A>& to, int channels, A epsilon) {
  for (long long c = thread_index(); c < channels; c += thread_count()) {
    const A mean = wide(to.running_mean[c]), variance = wide(to.running_variance[c]);
    if (to.mean_out) to.mean_out[c] = element<P>(mean);
    if (to.variance_out) to.variance_out[c] = element<P>(variance);
    to.save((int)c, mean, variance, epsilon);
  }
}
// Statistics over all replicas: `stats` is [elements of a channel, sums, sums of squares].
template <class A>
EVERYWHERE void block_stats(const A* means, const A* squares, double* stats, int chunks, int channels, long long size,
                            long long total) {
  Moments<A> found;
  int c;
  if (!block_put_together(means, squares, chunks, channels, size, total, found, c)) return;
  const double mean = found.mean, count = (double)total;
  if (c == 0) stats[0] = count;
  stats[1 + c] = mean * count;
  stats[1 + channels + c] = (double)found.squares + mean * mean * count;
}
template <class D, class P, class A>
EVERYWHERE void learn_from_stats(const D* stats, const Channel<P, A>& to, int channels, A momentum, A epsilon) {
  for (long long c = thread_index(); c < channels; c += thread_count()) {
    const double count = stats[0], mean = stats[1 + c] / count, apart = stats[1 + channels + c] / count - mean * mean;
    to.learnt((int)c, (A)mean, (A)(apart < 0 ? 0 : apart), momentum, epsilon);
  }
}

// ---- the norm itself ---------------------------------------------------------------------------------------
// y = act((x - mean) * slope + shift + z)
template <class T, class P, class A, class Act, bool ADDS, class Tile>
EVERYWHERE void norm_apply(const T* x, const T* z, const P* means, const A* slopes, const P* shifts, T* y,
                           const Tile& tile) {
  constexpr int V = Tile::V;
  A mean[V], slope[V], shift[V];
  load_channels(means, mean, tile);
  load_channels(slopes, slope, tile);
  load_channels(shifts, shift, tile);
#pragma unroll 4
  for (long long k = tile.next; k < tile.end; k += tile.LY) {
    const Vec<T, V> v = load_vec<V>(x + tile.at(k));
    Vec<T, V> w, made;
    if constexpr (ADDS) w = load_vec<V>(z + tile.at(k));
#pragma unroll
    for (int j = 0; j < V; j++) {
      A value = ((A)wide(v.at[j]) - mean[j]) * slope[j] + shift[j];
      if constexpr (ADDS) value += (A)wide(w.at[j]);
      made.at[j] = element<T>(Act::of(value));
    }
    store_vec<V>(y + tile.at(k), made);
  }
}

template <class A> struct Pair {
  A plain, along;
  static EVERYWHERE Pair join(const Pair& a, const Pair& b) { return {a.plain + b.plain, a.along + b.along}; }
};

// A chunk's sums of g, and of g * (x - mean), for each channel; g is what comes through the activation.
template <class T, class P, class A, class Act, bool ACTS, class Tile>
EVERYWHERE void block_slopes(const T* x, const T* y, const T* d_y, const P* means, A* plain, A* along, int channels,
                             const Tile& tile) {
  constexpr int V = Tile::V;
  A mean[V];
  load_channels(means, mean, tile);
  Pair<A> found[V];
#pragma unroll
  for (int j = 0; j < V; j++) found[j] = {0, 0};
#pragma unroll 4
  for (long long k = tile.next; k < tile.end; k += tile.LY) {
    const Vec<T, V> v = load_vec<V>(x + tile.at(k)), d = load_vec<V>(d_y + tile.at(k));
    Vec<T, V> made;
    if constexpr (ACTS) made = load_vec<V>(y + tile.at(k));
#pragma unroll
    for (int j = 0; j < V; j++) {
      A g = wide(d.at[j]);
      if constexpr (ACTS) g = Act::grad((A)wide(made.at[j]), g);
      found[j].plain += g;
      found[j].along += g * ((A)wide(v.at[j]) - mean[j]);
    }
  }
  block_write_tile(found, tile, channels, [=](long long to, const Pair<A>& all) {
    plain[to] = all.plain;
    along[to] = all.along;
  });
}
// The same of rows with statistics of their own: sums of d_y and d_y * hat down the columns.
template <class T, class S, class A, class Tile>
EVERYWHERE void block_row_slopes(const T* x, const T* d_y, const S* means, const S* variances, A* plain, A* along,
                                 int width, A epsilon, const Tile& tile) {
  constexpr int V = Tile::V;
  Pair<A> found[V];
#pragma unroll
  for (int j = 0; j < V; j++) found[j] = {0, 0};
#pragma unroll 4
  for (long long k = tile.next; k < tile.end; k += tile.LY) {
    const Vec<T, V> v = load_vec<V>(x + tile.at(k)), d = load_vec<V>(d_y + tile.at(k));
    const A mean = wide(means[k]), inverse = (A)1 / sqrt((A)wide(variances[k]) + epsilon);
#pragma unroll
    for (int j = 0; j < V; j++) {
      const A g = wide(d.at[j]);
      found[j].plain += g;
      found[j].along += g * (((A)wide(v.at[j]) - mean) * inverse);
    }
  }
  block_write_tile(found, tile, width, [=](long long to, const Pair<A>& all) {
    plain[to] = all.plain;
    along[to] = all.along;
  });
}

// Add the chunks' sums up; `inverse` (may be null) is 1 / deviation, by which those along x are multiplied.
template <class A, class R, class P>
EVERYWHERE bool block_add_chunks(const A* plain, const A* along, const P* inverse, int chunks, int channels,
                                 R* d_shift, R* d_scale, Pair<A>& found, int& channel) {
  constexpr int LX = 8, LY = 256 / LX;
  channel = blockIdx.x * LX + threadIdx.x % LX;
  Pair<A> mine[1] = {{0, 0}};
  if (channel < channels) {
#pragma unroll 4
    for (int k = threadIdx.x / LX; k < chunks; k += LY) {
      const long long at = (long long)k * channels + channel;
      mine[0] = Pair<A>::join(mine[0], {plain[at], along[at]});
    }
  }
  block_join_down<Pair<A>, LX, 1>(mine);
  found = mine[0];
  if (threadIdx.x >= LX || channel >= channels) return false;
  if (inverse) found.along *= (A)wide(inverse[channel]);
  if (d_shift) d_shift[channel] = element<R>(found.plain);
  if (d_scale) d_scale[channel] = element<R>(found.along);
  return true;
}
// ... and what d_x takes of them: `share` is 1 / elements of a channel (0: fixed statistics).
template <class A, class P>
EVERYWHERE void block_add_slopes(const A* plain, const A* along, const P* scale, const P* inverse, P* d_shift,
                                 P* d_scale, A* coefficients, int chunks, int channels, A share) {
  Pair<A> found;
  int c;
  if (!block_add_chunks(plain, along, inverse, chunks, channels, d_shift, d_scale, found, c)) return;
  const A by = wide(inverse[c]);
  coefficients[c] = by * (A)wide(scale[c]);
  coefficients[channels + c] = found.plain * share;
  coefficients[2 * channels + c] = found.along * share * by;
}
template <class A, class P>
EVERYWHERE void block_add_rows(const A* plain, const A* along, int chunks, int channels, P* d_shift, P* d_scale) {
  Pair<A> found;
  int c;
  block_add_chunks(plain, along, (const P*)0, chunks, channels, d_shift, d_scale, found, c);
}
// `local` and `total` are this replica's sums; the second is added up over replicas later.
template <class A, class P>
EVERYWHERE void block_local_slopes(const A* plain, const A* along, const P* inverse, double* local, double* total,
                                   int chunks, int channels) {
  Pair<A> found;
  int c;
  if (!block_add_chunks(plain, along, inverse, chunks, channels, local, local + channels, found, c)) return;
  total[c] = local[c];
  total[channels + c] = local[channels + c];
}
template <class A, class P, class D>
EVERYWHERE void slopes_of_all(const D* stats, const D* local, const D* total, const P* scale,
                              const P* inverse, P* d_shift, P* d_scale, A* coefficients, int channels) {
  for (long long c = thread_index(); c < channels; c += thread_count()) {
    if (d_shift) d_shift[c] = element<P>(local[c]);
    if (d_scale) d_scale[c] = element<P>(local[channels + c]);
    const A by = wide(inverse[c]);
    coefficients[c] = by * (A)wide(scale[c]);
    coefficients[channels + c] = (A)((double)total[c] / stats[0]);
    coefficients[2 * channels + c] = (A)((double)total[channels + c] / stats[0]) * by;
  }
}

// d_z = g, d_x = slope * (g - mean(g) - (x - mean) * along); of FIXED statistics slope * g.
template <class T, class P, class A, class Act, bool ACTS, bool FIXED, class Tile>
EVERYWHERE void norm_apply_grad(const T* x, const T* y, const T* d_y, const P* means, const A* coefficients, T* d_x,
                                T* d_z, int channels, const Tile& tile) {
  constexpr int V = Tile::V;
  A mean[V], slope[V], plain[V], along[V];
  load_channels(means, mean, tile);
  load_channels(coefficients, slope, tile);
  load_channels(coefficients + channels, plain, tile);
  load_channels(coefficients + 2 * channels, along, tile);
#pragma unroll 4
  for (long long k = tile.next; k < tile.end; k += tile.LY) {
    const Vec<T, V> d = load_vec<V>(d_y + tile.at(k));
    Vec<T, V> v, made, to_x, to_z;
    if constexpr (!FIXED) v = load_vec<V>(x + tile.at(k));
    if constexpr (ACTS) made = load_vec<V>(y + tile.at(k));
#pragma unroll
    for (int j = 0; j < V; j++) {
      A g = wide(d.at[j]);
      if constexpr (ACTS) g = Act::grad((A)wide(made.at[j]), g);
      to_z.at[j] = element<T>(g);
      if constexpr (!FIXED) g = g - plain[j] - ((A)wide(v.at[j]) - mean[j]) * along[j];
      to_x.at[j] = element<T>(g * slope[j]);
    }
    if (d_x) store_vec<V>(d_x + tile.at(k), to_x);
    if (d_z) store_vec<V>(d_z + tile.at(k), to_z);
  }
}
