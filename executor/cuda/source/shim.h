// Compiles kernels as C++ and runs them on the host, a block after the other. Threads of a block that wait for
// each other are fibers, so __syncthreads, __shared__ and warp shuffles behave as on a GPU; others run in turn.
// A warp goes as far as it can before the next one begins, and every other launch begins with the last block, warp
// and thread: where a barrier is missing, one of two launches reads too early.
#pragma once
#define ROWLOCK_ON_HOST 1
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static thread_local
#define __restrict__ __restrict
#define __launch_bounds__(...)

struct dim3 { unsigned x, y, z; };
static thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;
struct alignas(16) ulonglong2 { unsigned long long x, y; };

static inline float __uint_as_float(unsigned u) { float f; memcpy(&f, &u, 4); return f; }
static inline unsigned __float_as_uint(float f) { unsigned u; memcpy(&u, &f, 4); return u; }
static inline float __int_as_float(int u) { float f; memcpy(&f, &u, 4); return f; }
static inline unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)(((unsigned long long)a * b) >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
// As CUDA has them; in C these names are functions of double alone.
#define OF_FLOAT_(name) static inline float name(float x) { return name##f(x); }
OF_FLOAT_(exp) OF_FLOAT_(log) OF_FLOAT_(log1p) OF_FLOAT_(sqrt) OF_FLOAT_(fabs) OF_FLOAT_(cos) OF_FLOAT_(tanh) OF_FLOAT_(erf)
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline long long min(long long a, long long b) { return a < b ? a : b; }
static inline long long max(long long a, long long b) { return a > b ? a : b; }

struct f16; struct bf16;
float wide(f16); f16 narrow_f16(float); bf16 narrow_bf16(float);

// ---- threads of a block ----------------------------------------------------------------------------------
struct Fiber {
  ucontext_t start;
  jmp_buf at;
  char* stack;
  bool begun, done, waits;  // for all threads of the block
  unsigned long long lane;
  unsigned token;
};
static const unsigned FIBER_STACK = 64 << 10;
static thread_local Fiber* fibers_;
static thread_local unsigned fiber_, threads_;
static thread_local jmp_buf scheduler_;
static thread_local void (*body_)(void**);
static thread_local void** arguments_;

static inline void pause_() {
  if (!fibers_) return;
  if (!_setjmp(fibers_[fiber_].at)) _longjmp(scheduler_, 1);
}
static inline void __syncthreads() {
  if (fibers_) fibers_[fiber_].waits = true;
  pause_();
}
static inline void __syncwarp(unsigned = 0xffffffffu) { pause_(); }

static inline unsigned long long exchange_(unsigned long long mine, unsigned from) {
  fibers_[fiber_].lane = mine;
  pause_();
  unsigned long long got = from < threads_ ? fibers_[from].lane : mine;
  pause_();
  return got;
}
template <class T> static inline T shuffled_(T v, unsigned from) {
  unsigned long long word = 0;
  memcpy(&word, &v, sizeof v);
  word = exchange_(word, from);
  memcpy(&v, &word, sizeof v);
  return v;
}
template <class T> static inline T __shfl_xor_sync(unsigned, T v, int mask, int = 32) {
  return shuffled_(v, (fiber_ & ~31u) | ((fiber_ & 31u) ^ (unsigned)mask));
}
template <class T> static inline T __shfl_sync(unsigned, T v, int lane, int = 32) {
  return shuffled_(v, (fiber_ & ~31u) | ((unsigned)lane & 31u));
}
static inline unsigned __ballot_sync(unsigned, int p) {
  fibers_[fiber_].token = p != 0;
  pause_();
  unsigned votes = 0, first = fiber_ & ~31u;
  for (unsigned i = first; i < first + 32 && i < threads_; i++) votes |= fibers_[i].token << (i - first);
  pause_();
  return votes;
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int atomicAdd(int* at, int by) { return __atomic_fetch_add(at, by, __ATOMIC_RELAXED); }
static inline unsigned long long atomicCAS(unsigned long long* at, unsigned long long old, unsigned long long by) {
  return __sync_val_compare_and_swap(at, old, by);
}
static inline void __threadfence_system() { __sync_synchronize(); }

static void fiber_main_() {
  body_(arguments_);
  fibers_[fiber_].done = true;
  _longjmp(scheduler_, 1);
}
static void switch_to_(unsigned i) {
  Fiber& f = fibers_[i];
  fiber_ = i;
  threadIdx = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
  if (_setjmp(scheduler_)) return;
  if (f.begun) _longjmp(f.at, 1);
  f.begun = true;
  getcontext(&f.start);
  f.start.uc_stack.ss_sp = f.stack;
  f.start.uc_stack.ss_size = FIBER_STACK;
  f.start.uc_link = 0;
  makecontext(&f.start, fiber_main_, 0);
  setcontext(&f.start);
}
static thread_local bool backwards_;  // the last block, warp and thread begin
static inline unsigned in_turn_(unsigned i, unsigned count) { return backwards_ ? count - 1 - i : i; }

// Let the threads of a warp go until all wait for the block, or are done; tell whether any went.
static bool run_warp_(unsigned first) {
  const unsigned lanes = threads_ - first < 32 ? threads_ - first : 32;
  bool any = false;
  for (bool more = true; more;) {
    more = false;
    for (unsigned k = 0; k < lanes; k++) {
      Fiber& f = fibers_[first + in_turn_(k, lanes)];
      if (f.done || f.waits) continue;
      switch_to_(&f - fibers_);
      any = true;
      more |= !f.done && !f.waits;
    }
  }
  return any;
}
// Fibers are compiled for kernels that have barriers alone: they take a compiler as long as a short kernel.
template <bool barriers> static void run_block_() {
  if constexpr (!barriers) {
    for (unsigned k = 0; k < threads_; k++) {
      const unsigned i = in_turn_(k, threads_);
      threadIdx = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
      body_(arguments_);
    }
  } else {
    const unsigned warps = (threads_ + 31) / 32;
    for (unsigned i = 0; i < threads_; i++) fibers_[i].begun = fibers_[i].done = false;
    for (bool any = true; any;) {
      any = false;
      for (unsigned i = 0; i < threads_; i++) fibers_[i].waits = false;
      for (unsigned w = 0; w < warps; w++) any |= run_warp_(32 * in_turn_(w, warps));
    }
  }
}
template <bool barriers> static void launch_(const unsigned* dims, void (*body)(void**), void** arguments) {
  gridDim = {dims[0], dims[1], dims[2]};
  blockDim = {dims[3], dims[4], dims[5]};
  threads_ = dims[3] * dims[4] * dims[5];
  body_ = body;
  arguments_ = arguments;
  char* stacks = 0;
  if constexpr (barriers) {
    fibers_ = (Fiber*)calloc(threads_, sizeof(Fiber));
    stacks = (char*)malloc((size_t)threads_ * FIBER_STACK);
    for (unsigned i = 0; i < threads_; i++) fibers_[i].stack = stacks + (size_t)i * FIBER_STACK;
  }
  const unsigned long long blocks = (unsigned long long)dims[0] * dims[1] * dims[2];
  for (unsigned long long k = 0; k < blocks; k++) {
    const unsigned long long b = backwards_ ? blocks - 1 - k : k;
    blockIdx = {(unsigned)(b % dims[0]), (unsigned)(b / dims[0] % dims[1]), (unsigned)(b / dims[0] / dims[1])};
    run_block_<barriers>();
  }
  backwards_ = !backwards_;
  free(fibers_);
  free(stacks);
  fibers_ = 0;
}
