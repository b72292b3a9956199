// Counts the allocations of a test program: replaces operator new and delete, so exactly one file
// of a program includes it.
//
//   AllocationCounter::start(); …; const long n = AllocationCounter::stop();
//
// Allocations that oneDNN and the OpenMP runtime make inside are counted on their own. Threads:
// those of all threads are counted.
#pragma once

// The operators below replace all of new and delete together; g++ does not see that they match.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <string_view>

#include <dlfcn.h>

namespace dltrain {

struct AllocationCounter {
  static inline std::atomic<bool> counting{false};
  static inline std::atomic<long> own{0}, vendors{0};

  static void start() { own = 0, vendors = 0, counting = true; }
  static long stop() {
    counting = false;
    return own;
  }

  static void count(void* caller) {
    if (!counting) return;
    Dl_info info{};
    const bool known = dladdr(caller, &info) != 0 && info.dli_fname != nullptr;
    const std::string_view library = known ? info.dli_fname : "";
    const bool vendor = library.find("libdnnl") != std::string_view::npos ||
                        library.find("libgomp") != std::string_view::npos;
    ++(vendor ? vendors : own);
  }

  static void* allocate(size_t bytes, size_t alignment, void* caller) {
    count(caller);
    void* out = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (out == nullptr) throw std::bad_alloc();
    return out;
  }
};

}  // namespace dltrain

void* operator new(size_t bytes) {
  return dltrain::AllocationCounter::allocate(bytes, alignof(std::max_align_t),
                                              __builtin_return_address(0));
}
void* operator new[](size_t bytes) {
  return dltrain::AllocationCounter::allocate(bytes, alignof(std::max_align_t),
                                              __builtin_return_address(0));
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return dltrain::AllocationCounter::allocate(bytes, static_cast<size_t>(alignment),
                                              __builtin_return_address(0));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return dltrain::AllocationCounter::allocate(bytes, static_cast<size_t>(alignment),
                                              __builtin_return_address(0));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes);
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete[](void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, size_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}
