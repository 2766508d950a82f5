// Pools over regions of images (graph/ops/region_pool.py). A mean over a bin is a weight for each row times one for
// each column: `place_regions` writes these, and the window of pixels that have any. Legend: region r belongs to image
// image[r]; those of image n begin at starts[n]. A region has bins_h and then bins_w windows [first, behind).
#pragma once

enum Pooling { LARGEST, ALIGNED, COUNTED, INTEGRATED };

// Rounded as they stand: a multiply-add could move the edge of a bin across a pixel.
EVERYWHERE float times(float a, float b) { return __fmul_rn(a, b); }
EVERYWHERE double times(double a, double b) { return __dmul_rn(a, b); }
EVERYWHERE float plus(float a, float b) { return __fadd_rn(a, b); }
EVERYWHERE double plus(double a, double b) { return __dadd_rn(a, b); }

template <class T> EVERYWHERE int pixel(T at, int length) { return at <= 0 ? 0 : at >= length ? length : (int)at; }
template <class T> EVERYWHERE T away_from_zero(T x) { return x < 0 ? ceil(x - (T)0.5) : floor(x + (T)0.5); }
template <class T> EVERYWHERE T above(T x, T least) { return x > least ? x : least; }
template <class T> EVERYWHERE T tent(T t) { return t < 0 ? above(1 + t, (T)0) : above(1 - t, (T)0); }
template <class T> EVERYWHERE T below(T t) {  // the integral of the tent up to t
  if (t <= -1 || t >= 1) return t > 0;
  return (T)0.5 + t - (t < 0 ? -t : t) * t / 2;
}

// Bin `number` of `count` along an axis of `length` pixels, on which a region goes from `from` to `to`.
template <class T> struct Bin {
  T from, to;
  int number, count, length;
  T *mean, *low, *high;  // weights of pixels, and their slopes by the edges of the bin; or none

  EVERYWHERE void whole(T start, T size, T shift, int* window) const {
    window[0] = pixel(plus(floor(plus(times((T)number, size), start)), shift), length);
    window[1] = pixel(plus(ceil(plus(times((T)(number + 1), size), start)), shift), length);
  }
  EVERYWHERE void largest(T scale, int* window) const {
    const T start = away_from_zero(times(from, scale)), end = away_from_zero(times(to, scale));
    whole(0, above(end - start + 1, (T)1) / count, start, window);
  }
  EVERYWHERE void counted(T scale, int* window) const {
    const T start = times(away_from_zero(from), scale), end = times(away_from_zero(to) + 1, scale);
    whole(start, above(end - start, (T)0.1) / count, 0, window);
    for (int i = window[0]; i < window[1]; i++) mean[i] = 1 / (T)(window[1] - window[0]);
  }
  // With a `shift` of pixels, regions keep their size, which may be none or negative: points go backwards then.
  EVERYWHERE void aligned(T scale, T shift, int sampling, int* window) const {
    const T start = plus(times(from, scale), -shift), wide = plus(times(to, scale), -shift) - start;
    const T size = shift > 0 ? wide : above(wide, (T)1), each = size / count;
    const T points = sampling > 0 ? (T)sampling : ceil(size / count), step = each / points;
    const T begin = plus(start, times((T)number, each));
    // No more points than may lie on the image, whatever the region; those that do not are left out below.
    const double near = (-1.0 - begin) / step, far = ((double)length - begin) / step;
    const double margin = 3 + 1e-6 * ((near < 0 ? -near : near) + (far < 0 ? -far : far));
    const long long k0 = step == 0 ? 0 : pixel((near < far ? near : far) - margin, 1 << 30);
    const long long k1 = step == 0 ? 1 << 30 : pixel((near < far ? far : near) + margin, 1 << 30);
    window[0] = window[1] = begin + step / 2 < -1 ? 0 : length;  // in order, also of bins without points
    for (int pass = 0, any = 0; pass < 2; pass++) {
      if (pass) for (int i = window[0]; i < window[1]; i++) mean[i] = 0;
      for (long long k = k0; k < k1 && k < points; k++) {
        T at = plus(begin, times((T)k + (T)0.5, step));
        if (at < -1 || at > length) continue;
        at = at < 0 ? 0 : at > length - 1 ? length - 1 : at;
        const int here = (int)at, next = here + 1 < length ? here + 1 : here;
        if (pass) {
          mean[here] += (1 - (at - here)) / points;
          mean[next] += (at - here) / points;
        } else {
          if (!any++) window[0] = here, window[1] = next + 1;
          if (here < window[0]) window[0] = here;
          if (next + 1 > window[1]) window[1] = next + 1;
        }
      }
    }
  }
  EVERYWHERE void integrated(double scale, int* window) const {  // in double precision: narrow bins cancel digits
    const double start = from * scale, size = above(to * scale - start, 0.0) / count;
    const double begin = start + number * size, end = begin + size, over = size > 0 ? 1 / size : 0;
    window[0] = pixel(floor(begin), length);
    window[1] = pixel(ceil(end) + 1, length);
    for (int i = window[0]; i < window[1]; i++) {
      const double share = (below(end - i) - below(begin - i)) * over;
      mean[i] = (T)share;
      if (!low) continue;
      low[i] = (T)((share - tent(begin - i)) * over);
      high[i] = (T)((tent(end - i) - share) * over);
    }
  }
};

// `ends` are offsets of sequences, or (NUMBERS) how many regions each image has.
template <Pooling HOW, bool NUMBERS, class T, class I>
EVERYWHERE void place_regions(const T* rois, const I* ends, int* image, int* starts, int* windows, T* rows, T* columns,
                              T* row_slopes, T* column_slopes, long long* word, volatile long long* noted,
                              int assertion, int of_region, int regions, int images, int bins_h, int bins_w,
                              int height, int width, int sampling, double scale, double shift) {
  const int bins = bins_h + bins_w;
  const long long all = (long long)regions * bins;
  for (long long i = thread_index(); i < all || i <= images; i += thread_count()) {
    const int r = (int)(i / bins), k = (int)(i % bins);
    long long end = 0;
    int own = 0;
    for (int n = 0; n <= images; n++) {
      if (n || !NUMBERS) end = NUMBERS ? end + ends[n - 1] : ends[n];
      const int start = (int)(end < 0 ? 0 : end > regions ? regions : end);
      if (i == n) starts[n] = start;
      if (n && n < images && start <= r) own = n;
    }
    if (i == 0 && end != regions) refuse(word, noted, assertion, end);
    if (i >= all) continue;
    if (k == 0) image[r] = own;
    const T* roi = rois + (long long)r * 4;
    const bool finite = roi[0] - roi[0] == 0 && roi[1] - roi[1] == 0 && roi[2] - roi[2] == 0 && roi[3] - roi[3] == 0;
    int* window = windows + i * 2;
    if (!finite) {
      refuse(word, noted, of_region, r);
      window[0] = window[1] = 0;
      continue;
    }
    const bool column = k >= bins_h;
    const int number = column ? k - bins_h : k, count = column ? bins_w : bins_h, length = column ? width : height;
    const long long at = ((long long)r * count + number) * length, slopes = (long long)regions * count * length;
    T* low = column ? column_slopes : row_slopes;
    const Bin<T> bin = {roi[!column], roi[2 + !column], number, count, length, (column ? columns : rows) + at,
                        low ? low + at : low, low ? low + slopes + at : low};
    if constexpr (HOW == LARGEST) bin.largest((T)scale, window);
    else if constexpr (HOW == ALIGNED) bin.aligned((T)scale, (T)shift, sampling, window);
    else if constexpr (HOW == COUNTED) bin.counted((T)scale, window);
    else bin.integrated(scale, window);
  }
}

// A result of a bin. With POSITIONS each bin has channels of its own.
template <Pooling HOW, bool POSITIONS, class T>
EVERYWHERE void pool_regions(const T* x, const int* image, const int* windows, const T* rows, const T* columns, T* out,
                             long long* places, int regions, int channels, int bins_h, int bins_w, int height,
                             int width) {
  const long long all = (long long)regions * channels * bins_h * bins_w;
  for (long long i = thread_index(); i < all; i += thread_count()) {
    const int q = (int)(i % bins_w), p = (int)(i / bins_w % bins_h), c = (int)(i / bins_w / bins_h % channels);
    const long long r = i / bins_w / bins_h / channels;
    const long long plane = POSITIONS ? (image[r] * (long long)channels + c) * bins_h * bins_w + p * bins_w + q
                                      : image[r] * (long long)channels + c;
    const T* pixels = x + plane * height * width;
    const int* own = windows + (r * (bins_h + bins_w) + p) * 2;
    const int* other = windows + (r * (bins_h + bins_w) + bins_h + q) * 2;
    const T* of_row = rows + (r * bins_h + p) * height;
    const T* of_column = columns + (r * bins_w + q) * width;
    T sum = 0;
    long long place = -1;
    for (int h = own[0]; h < own[1]; h++) {
      T line = 0;
      for (int w = other[0]; w < other[1]; w++) {
        const T v = pixels[(long long)h * width + w];
        if constexpr (HOW != LARGEST) line += of_column[w] * v;
        else if (place < 0 || v > sum || (v != v && sum == sum)) sum = v, place = (long long)h * width + w;
      }
      if constexpr (HOW != LARGEST) sum += of_row[h] * line;
    }
    out[i] = sum;
    if (HOW == LARGEST && places) places[i] = place;
  }
}

// Whether no window of the first to the last bin along an axis, which are in order, has a pixel.
EVERYWHERE bool beside(int i, const int* windows, int bins) {
  const int* last = windows + (bins - 1) * 2;
  return (i < windows[0] && i < last[0]) || (i >= windows[1] && i >= last[1]);
}

// The gradient of G channels of a pixel, gathered from the regions of its image, in their order.
template <Pooling HOW, bool POSITIONS, int G, class T>
EVERYWHERE void spread_regions(const T* d_out, const long long* places, const int* starts, const int* windows,
                               const T* rows, const T* columns, T* d_x, int images, int channels, int bins_h,
                               int bins_w, int height, int width) {
  const int groups = (channels + G - 1) / G, results = POSITIONS ? channels / bins_h / bins_w : channels;
  const long long all = (long long)images * groups * height * width;
  for (long long i = thread_index(); i < all; i += thread_count()) {
    const int w = (int)(i % width), h = (int)(i / width % height), first = (int)(i / width / height % groups) * G;
    const int n = (int)(i / width / height / groups);
    const int only_p = first / bins_w % bins_h, only_q = first % bins_w;  // of POSITIONS
    T sums[G] = {};
    for (int r = starts[n]; r < starts[n + 1]; r++) {
      const int* own = windows + (long long)r * (bins_h + bins_w) * 2;
      const int* other = own + bins_h * 2;
      if (beside(h, own, bins_h) || beside(w, other, bins_w)) continue;
      for (int p = POSITIONS ? only_p : 0; p < (POSITIONS ? only_p + 1 : bins_h); p++) {
        if (h < own[2 * p] || h >= own[2 * p + 1]) continue;
        for (int q = POSITIONS ? only_q : 0; q < (POSITIONS ? only_q + 1 : bins_w); q++) {
          if (w < other[2 * q] || w >= other[2 * q + 1]) continue;
          T weight = 1;
          if constexpr (HOW != LARGEST)
            weight = rows[((long long)r * bins_h + p) * height + h] * columns[((long long)r * bins_w + q) * width + w];
#pragma unroll
          for (int g = 0; g < G; g++) {
            const int c = POSITIONS ? first / bins_w / bins_h : first + g;
            if (c >= results) break;
            const long long at = (((long long)r * results + c) * bins_h + p) * bins_w + q;
            if (HOW != LARGEST || places[at] == (long long)h * width + w) sums[g] += weight * d_out[at];
          }
        }
      }
    }
    for (int g = 0; g < G && first + g < channels; g++)
      d_x[((long long)n * channels + first + g) * height * width + (long long)h * width + w] = sums[g];
  }
}

// The gradient of a region's edges, by a block. Edge k of n bins moves with the first one by 1 - k / n, and by k / n
// with the last one.
template <class T>
EVERYWHERE void block_slopes_of_regions(const T* x, const T* d_out, const int* image, const int* windows, const T* rows,
                                        const T* columns, const T* row_slopes, const T* column_slopes, T* d_rois,
                                        int regions, int channels, int bins_h, int bins_w, int height, int width,
                                        double scale) {
  const long long r = blockIdx.x, to_high_h = (long long)regions * bins_h * height;
  if (r >= regions) return;
  const long long to_high_w = (long long)regions * bins_w * width;
  double all_h = 0, late_h = 0, all_w = 0, late_w = 0;
  for (int i = threadIdx.x; i < channels * bins_h * bins_w; i += blockDim.x) {
    const int q = i % bins_w, p = i / bins_w % bins_h, c = i / bins_w / bins_h;
    const T* pixels = x + (image[r] * (long long)channels + c) * height * width;
    const int* own = windows + (r * (bins_h + bins_w) + p) * 2;
    const int* other = windows + (r * (bins_h + bins_w) + bins_h + q) * 2;
    const long long row = (r * bins_h + p) * height, column = (r * bins_w + q) * width;
    T low_h = 0, high_h = 0, low_w = 0, high_w = 0;
    for (int h = own[0]; h < own[1]; h++) {
      T line = 0, low = 0, high = 0;
      for (int w = other[0]; w < other[1]; w++) {
        const T v = pixels[(long long)h * width + w];
        line += columns[column + w] * v;
        low += column_slopes[column + w] * v;
        high += column_slopes[to_high_w + column + w] * v;
      }
      low_h += row_slopes[row + h] * line;
      high_h += row_slopes[to_high_h + row + h] * line;
      low_w += rows[row + h] * low;
      high_w += rows[row + h] * high;
    }
    const double g = d_out[r * channels * bins_h * bins_w + i];
    all_h += g * (low_h + high_h);
    late_h += g * (low_h * (double)p + high_h * (p + 1.0)) / bins_h;
    all_w += g * (low_w + high_w);
    late_w += g * (low_w * (double)q + high_w * (q + 1.0)) / bins_w;
  }
  all_h = block_join<Sum>(all_h);
  late_h = block_join<Sum>(late_h);
  all_w = block_join<Sum>(all_w);
  late_w = block_join<Sum>(late_w);
  if (threadIdx.x) return;
  T* d_roi = d_rois + r * 4;
  d_roi[0] = (T)((all_w - late_w) * scale);
  d_roi[1] = (T)((all_h - late_h) * scale);
  d_roi[2] = (T)(late_w * scale);
  d_roi[3] = (T)(late_h * scale);
}
