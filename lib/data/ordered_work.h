// Parallel work on items with ordered results.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "base/stop.h"

namespace dltrain {

// Runs rounds of: produce(item) for up to `batch` items per thread, until it returns false (on the
// calling thread); work(item, thread) for each item (on all threads); consume(item) in order (on
// the calling thread). Items are reused, so that they can keep memory. If work() throws, the error
// of the first such item is rethrown, and later items are not consumed.
template <typename Item, typename Produce, typename Work, typename Consume>
void ordered_work(int threads, const Produce& produce, const Work& work, const Consume& consume,
                  size_t batch = 4) {
  struct Slot {
    Item item;
    std::exception_ptr error;
  };
  std::vector<Slot> slots(static_cast<size_t>(std::max(1, threads)) * batch);
  for (bool more = true; more;) {
    check_stop();
    size_t count = 0;
    while (count < slots.size() && (more = produce(slots[count].item))) ++count;
    std::atomic<size_t> next{0};
    const auto run = [&](int thread) {
      for (size_t i = next++; i < count; i = next++) {
        slots[i].error = nullptr;
        try {
          work(slots[i].item, thread);
        } catch (...) {
          slots[i].error = std::current_exception();
        }
      }
    };
    std::vector<std::thread> others;
    try {
      for (int i = 1; i < threads && static_cast<size_t>(i) < count; ++i) {
        others.emplace_back(run, i);
      }
    } catch (const std::system_error&) {
      // Fewer threads do the same work.
    }
    run(0);
    for (std::thread& thread : others) thread.join();
    for (size_t i = 0; i < count; ++i) {
      if (slots[i].error) std::rethrow_exception(slots[i].error);
      consume(slots[i].item);
    }
  }
}

}  // namespace dltrain
