// Loops over the threads of OpenMP: the pool that oneDNN uses too, so the two never compete.
// Without OpenMP (thread sanitizer) everything runs in the calling thread.
#pragma once

#include <algorithm>
#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace dltrain {

inline int thread_count() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

// Returns the threads for a product [rows, inner] × [inner, columns]: all, or one if starting a
// second thread costs about what it saves. The bits of such small products do not depend on the
// thread count; oneDNN may split a long inner extent over threads, so that sums do.
inline int product_threads(int64_t rows, int64_t inner, int64_t columns) {
  constexpr int64_t kSmall = 2'000'000, kLongInner = 1024;  // multiplications: 20 to 40 µs
  const bool small = inner <= kLongInner && rows * inner * columns < kSmall;
  return small ? 1 : thread_count();
}

// RAII scope: ops that the calling thread runs use this number of threads.
class UsedThreads {
 public:
  explicit UsedThreads(int threads) : before_(thread_count()) { set(threads); }
  ~UsedThreads() { set(before_); }
  UsedThreads(const UsedThreads&) = delete;
  UsedThreads& operator=(const UsedThreads&) = delete;

 private:
  static void set([[maybe_unused]] int threads) {
#ifdef _OPENMP
    if (threads != thread_count()) omp_set_num_threads(threads);
#endif
  }
  int before_;
};

// Calls f(begin, end) for consecutive ranges that cover [0, n), at most one per thread; borders are
// multiples of `grain` (except n), and less than two grains of work run in the calling thread. The
// ranges depend on the number of threads; for sums that must not, let an element of the loop be a
// fixed chunk. f must not throw.
template <typename F>
void parallel_for(int64_t n, int64_t grain, const F& f) {
  const int64_t blocks = (n + grain - 1) / grain;
#ifdef _OPENMP
  const int64_t wanted = std::min<int64_t>(thread_count(), blocks);
  if (wanted > 1) {
#pragma omp parallel num_threads(static_cast <int>(wanted))
    {
      const int64_t part = omp_get_thread_num(), parts = omp_get_num_threads();
      const int64_t begin = blocks * part / parts * grain;
      const int64_t end = std::min(n, blocks * (part + 1) / parts * grain);
      if (begin < end) f(begin, end);
    }
    return;
  }
#endif
  if (blocks > 0) f(int64_t{0}, n);
}

// Calls f(i) for every i in [0, n), divided as by parallel_for.
template <typename F>
void parallel_each(int64_t n, int64_t grain, const F& f) {
  parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

// Calls f(begin, end, part) with part in [0, parts) for ranges that cover [0, n): for loops that
// need separate memory for each of `parts` threads.
template <typename F>
void parallel_parts(int64_t n, int64_t parts, const F& f) {
#ifdef _OPENMP
  const int64_t wanted = std::min({static_cast<int64_t>(thread_count()), parts, n});
  if (wanted > 1) {
#pragma omp parallel num_threads(static_cast <int>(wanted))
    {
      const int64_t part = omp_get_thread_num(), team = omp_get_num_threads();
      f(n * part / team, n * (part + 1) / team, part);
    }
    return;
  }
#endif
  (void)parts;
  if (n > 0) f(int64_t{0}, n, int64_t{0});
}

}  // namespace dltrain
