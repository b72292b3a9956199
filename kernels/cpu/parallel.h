// Loops over the threads of OpenMP: the pool that oneDNN uses too, so the two never compete.
// Without OpenMP (thread sanitizer) everything runs in the caller.
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

// The threads that a product [rows, inner] × [inner, columns] pays for: all, or one where a second
// takes about as long to begin as it saves. Such small products have the same bits with any number;
// oneDNN may share a long inner extent among threads, whose sums then depend on their number.
inline int product_threads(int64_t rows, int64_t inner, int64_t columns) {
  constexpr int64_t kSmall = 2'000'000, kLongInner = 1024;  // multiplications: 20 to 40 µs
  const bool small = inner <= kLongInner && rows * inner * columns < kSmall;
  return small ? 1 : thread_count();
}

// While it lives, ops that the calling thread runs use so many threads.
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

// Calls f(begin, end) for consecutive ranges that cover [0, n), at most one a thread; borders are
// multiples of `grain` (but n), and less than two grains of work stay in the calling thread. How
// [0, n) is cut depends on the number of threads: sums that must not depend on it take one element
// of the loop for a fixed chunk. f must not throw.
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

// Calls f(begin, end, part) with part in [0, parts) for ranges that cover [0, n): for loops that
// need memory of their own, laid out for `parts` threads.
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
