#include "cuda/vendor/autotune.h"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "cuda/vendor/code_cache.h"

namespace dltrain {
namespace {

constexpr int kMostRuns = 20;
constexpr float kMilliseconds = 5;  // of a candidate, at least one run

EventHandle timing_event() {
  EventHandle event;
  check_cuda(cudaEventCreateWithFlags(event.out(), cudaEventDefault), "making an event");
  return event;
}

// The shortest of several runs, in milliseconds; infinite where the candidate refuses.
float time_of(const std::function<bool(Stream&)>& run, Stream& stream, cudaEvent_t begin,
              cudaEvent_t end) {
  constexpr float kRefused = std::numeric_limits<float>::infinity();
  if (!run(stream)) return kRefused;
  float best = kRefused, spent = 0;
  for (int i = 0; i < kMostRuns && spent < kMilliseconds; ++i) {
    check_cuda(cudaEventRecord(begin, native_stream(stream)), "recording an event");
    if (!run(stream)) return kRefused;
    check_cuda(cudaEventRecord(end, native_stream(stream)), "recording an event");
    check_cuda(cudaEventSynchronize(end), "waiting for the GPU");
    float took = 0;
    check_cuda(cudaEventElapsedTime(&took, begin, end), "reading a time");
    best = std::min(best, took);
    spent += took;
  }
  return best;
}

}  // namespace

size_t fastest(CudaDevice& device, size_t candidates,
               const std::function<bool(size_t, Stream&)>& run) {
  device.make_current();
  const auto stream = device.make_stream();
  const EventHandle begin = timing_event(), end = timing_event();
  size_t best = 0;
  float least = std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < candidates; ++i) {
    const float took =
        time_of([&](Stream& on) { return run(i, on); }, *stream, begin.get(), end.get());
    if (took < least) {
      least = took;
      best = i;
    }
  }
  return best;
}

std::string tuned_choice(const CudaDevice& device, const std::string& key,
                         const std::function<std::string()>& make) {
  static std::mutex mutex;
  static std::map<std::string, std::string> known;
  const DeviceProperties& p = device.properties();
  const std::string whole = fmt::format("choice\n{} {} {}\n{}\n{}", p.name, p.architecture,
                                        p.processors, p.libraries, key);
  const std::lock_guard lock(mutex);
  if (const auto at = known.find(whole); at != known.end()) return at->second;
  return known[whole] = cached_code(cache_folder(), whole, make);
}

}  // namespace dltrain
