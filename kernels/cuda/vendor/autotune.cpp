#include "cuda/vendor/autotune.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include <fmt/format.h>

#include "base/error.h"
#include "cuda/vendor/code_cache.h"

namespace dltrain {
namespace {

constexpr int kMostRuns = 20;
constexpr float kMilliseconds = 5;  // per candidate, at least one run

using Clock = std::chrono::steady_clock;

EventHandle timing_event() {
  EventHandle event;
  check_cuda(cudaEventCreateWithFlags(event.out(), cudaEventDefault), "making an event");
  return event;
}

// Returns the shortest of several runs, in milliseconds; infinity if the candidate fails.
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

TuningLimits tuning_limits(Autotune mode) {
  switch (mode) {
    case Autotune::off:
      break;
    case Autotune::quick:
      return {.candidates = 8, .choice_seconds = 2, .total_seconds = 60};
    case Autotune::full:
      return {.candidates = 64, .choice_seconds = 30, .total_seconds = 1800};
  }
  return {.candidates = 1, .choice_seconds = 0, .total_seconds = 0};
}

std::optional<size_t> fastest(CudaDevice& device, size_t candidates,
                              const std::function<bool(size_t, Stream&)>& run) {
  Tuning& tuning = device.tuning();
  const TuningLimits limits = tuning_limits(tuning.mode);
  const double time = std::min(limits.choice_seconds, limits.total_seconds - tuning.seconds);
  if (time <= 0) return {};
  const Clock::time_point began = Clock::now();
  const auto spent = [&] { return std::chrono::duration<double>(Clock::now() - began).count(); };
  device.make_current();
  const auto stream = device.make_stream();
  const EventHandle begin = timing_event(), end = timing_event();
  std::optional<size_t> best;
  float least = std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < candidates && (i == 0 || spent() < time); ++i) {
    const float took =
        time_of([&](Stream& on) { return run(i, on); }, *stream, begin.get(), end.get());
    if (took < least) {
      least = took;
      best = i;
    }
  }
  tuning.seconds += spent();
  return best;
}

std::string tuned_choice(CudaDevice& device, const std::string& key,
                         const std::function<std::string()>& make) {
  Tuning& tuning = device.tuning();
  const std::string named =
      fmt::format("{}, {}", key, tuning.mode == Autotune::quick ? "quick" : "full");
  if (const auto at = tuning.made.find(named); at != tuning.made.end()) return at->second;
  const auto own = [&] {
    const DeviceProperties& p = device.properties();
    try {
      return cached_code(cache_folder(),
                         fmt::format("choice\n{} {} {}\n{}\n{}", p.name, p.architecture,
                                     p.processors, p.libraries, named),
                         make);
    } catch (const Error& error) {
      if (error.code() != ExitCode::memory) throw;
      return std::string();
    }
  };
  std::string choice = tuning.agree ? tuning.agree(named, own) : own();
  // Ranks also keep an empty choice, since they would differ otherwise.
  if (!choice.empty() || tuning.agree) tuning.made[named] = choice;
  return choice;
}

}  // namespace dltrain
