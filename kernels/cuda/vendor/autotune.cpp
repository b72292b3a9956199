#include "cuda/vendor/autotune.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numbers>

#include <fmt/format.h>

#include "base/error.h"
#include "base/philox.h"
#include "cuda/vendor/code_cache.h"
#include "shared/fp8.h"
#include "shared/workspace_parts.h"
#include "tensor/float_tensors.h"

namespace dltrain {
namespace {

constexpr int kMaxRuns = 63;        // 1, 2, 4 … 32 between two events
constexpr float kMilliseconds = 5;  // per candidate, at least one run
constexpr size_t kMaxSets = 256;

using Clock = std::chrono::steady_clock;

// Returns the shortest time of a run, in milliseconds; infinity if the candidate fails.
float time_of(const std::function<bool(Stream&)>& run, Stream& stream, cudaEvent_t begin,
              cudaEvent_t end, Clock::time_point deadline) {
  constexpr float kRefused = std::numeric_limits<float>::infinity();
  if (!run(stream)) return kRefused;
  stream.synchronize();
  float best = kRefused, spent = 0;
  for (int runs = 1; runs <= kMaxRuns && spent < kMilliseconds; runs *= 2) {
    check_cuda(cudaEventRecord(begin, native_stream(stream)), "recording an event");
    for (int i = 0; i < runs; ++i) {
      if (!run(stream)) return kRefused;
    }
    check_cuda(cudaEventRecord(end, native_stream(stream)), "recording an event");
    check_cuda(cudaEventSynchronize(end), "waiting for the GPU");
    float took = 0;
    check_cuda(cudaEventElapsedTime(&took, begin, end), "reading a time");
    best = std::min(best, took / static_cast<float>(runs));
    spent += took;
    if (Clock::now() >= deadline) break;
  }
  return best;
}

// Queues normal numbers (Box and Muller 1958) for a floating tensor of zeros, or a matrix of FP8
// codes; large ones repeat them.
void fill(CudaDevice& device, void* data, const TensorSpec& tensor, Stream& stream) {
  const bool codes = tensor.dtype == DType::u8 && tensor.shape.rank() > 1;
  if (data == nullptr || !(codes || is_low_precision(tensor.dtype) || tensor.dtype == DType::f32)) {
    return;
  }
  std::vector<float> normal(size_t{1} << 16);
  for (size_t i = 0; i < normal.size(); ++i) {
    const float radius = std::sqrt(-2 * std::log(1 - random_uniform(0, 0, 0, 2 * i)));
    normal[i] =
        radius * std::cos(2 * std::numbers::pi_v<float> * random_uniform(0, 0, 0, 2 * i + 1));
  }
  std::vector<std::byte> numbers = bytes_as(normal, codes ? DType::f32 : tensor.dtype);
  if (codes) {
    numbers.clear();
    for (const float x : normal) {
      numbers.push_back(std::byte{fp8_code(to_fp8(x, 1, 1, kE4M3), kE4M3)});
    }
  }
  size_t done = std::min(numbers.size(), tensor.bytes());
  device.copy(data, numbers.data(), done, stream);
  for (size_t more; done < tensor.bytes(); done += more) {
    more = std::min(done, tensor.bytes() - done);
    device.copy(static_cast<std::byte*>(data) + done, data, more, stream);
  }
}

}  // namespace

TuningLimits tuning_limits(Autotune mode) {
  if (mode == Autotune::quick) {
    return {.candidates = 8, .choice_seconds = 2, .total_seconds = 60};
  }
  if (mode == Autotune::full) {
    return {.candidates = 64, .choice_seconds = 30, .total_seconds = 1800};
  }
  return {.candidates = 1, .choice_seconds = 0, .total_seconds = 0};
}

TimingTensors::TimingTensors(CudaDevice& device, std::span<const TensorSpec> tensors) {
  WorkspaceParts parts;
  std::vector<size_t> offsets;
  for (const TensorSpec& tensor : tensors) offsets.push_back(parts.add(tensor.bytes()));
  const size_t bytes = std::max(parts.total(), size_t{1});
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "reading the free memory");
  const size_t wanted = std::min(1 + 2 * device.cache_bytes() / bytes, free / 2 / bytes);
  const size_t sets = std::clamp(wanted, size_t{1}, kMaxSets);
  memory_ = Buffer(device, sets * bytes);
  const auto stream = device.make_stream();
  for (size_t i = 0; i < sets; ++i) {
    std::byte* const start = memory_.data() + i * bytes;
    if (i > 0) device.copy(start, memory_.data(), bytes, *stream);
    std::vector<void*>& set = sets_.emplace_back();
    for (size_t k = 0; k < tensors.size(); ++k) {
      set.push_back(tensors[k].bytes() > 0 ? start + offsets[k] : nullptr);
      if (i == 0) fill(device, set[k], tensors[k], *stream);
    }
  }
  stream->synchronize();
}

std::optional<size_t> fastest(CudaDevice& device, size_t candidates,
                              const std::function<bool(size_t, Stream&)>& run) {
  const Clock::time_point deadline = device.tuning().deadline;
  device.make_current();
  const auto stream = device.make_stream();
  const EventHandle begin = make_event(cudaEventDefault), end = make_event(cudaEventDefault);
  std::optional<size_t> best;
  float least = std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < candidates && (i == 0 || Clock::now() < deadline); ++i) {
    const float took =
        time_of([&](Stream& on) { return run(i, on); }, *stream, begin.get(), end.get(), deadline);
    if (took < least) {
      least = took;
      best = i;
    }
  }
  return best;
}

std::optional<size_t> fastest_kernel(CudaDevice& device, SpecSpan inputs, SpecSpan outputs,
                                     size_t candidates,
                                     const std::function<std::unique_ptr<Kernel>(size_t)>& make) {
  SpecList specs(inputs.begin(), inputs.end());
  specs.insert(specs.end(), outputs.begin(), outputs.end());
  TimingTensors tensors(device, specs);
  // A candidate runs several times in a row and is made for the first run.
  size_t made = candidates;
  std::unique_ptr<Kernel> kernel;
  Buffer workspace;
  const auto run = [&](size_t i, Stream& stream) {
    try {
      if (made != i) {
        made = i;
        kernel = nullptr;
        workspace = {};
        kernel = make(i);
        if (kernel != nullptr) workspace = Buffer(device, kernel->workspace_bytes());
      }
      if (kernel == nullptr) return false;
      const auto set = tensors.next();
      BoundCall(*kernel, set.first(inputs.size()), set.subspan(inputs.size()), workspace.data())
          .run(stream);
    } catch (const Error&) {  // the library refuses it only now
      return false;
    }
    return true;
  };
  return fastest(device, std::min(candidates, tuning_limits(device.tuning().mode).candidates), run);
}

std::string tuned_choice(CudaDevice& device, const std::string& key,
                         const std::function<std::string()>& make) {
  Tuning& tuning = device.tuning();
  const std::string named =
      fmt::format("{}, {}", key, tuning.mode == Autotune::quick ? "quick" : "full");
  if (const auto at = tuning.made.find(named); at != tuning.made.end()) return at->second;
  const auto in_time = [&] {
    const TuningLimits limits = tuning_limits(tuning.mode);
    const double left = std::min(limits.choice_seconds, limits.total_seconds - tuning.seconds);
    if (left <= 0) return std::string();
    struct Timer {
      Tuning& tuning;
      Clock::time_point began = Clock::now();
      ~Timer() { tuning.seconds += std::chrono::duration<double>(Clock::now() - began).count(); }
    } const timer{tuning};
    tuning.deadline = timer.began + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(left));
    return make();
  };
  const DeviceProperties& p = device.properties();
  const std::string stored = fmt::format("choice 2\n{} {} {}\n{}\n{}", p.name, p.architecture,
                                         p.processors, p.libraries, named);
  const auto own = [&] {
    try {
      return cached_code(cache_folder(), stored, in_time);
    } catch (const Error& error) {
      if (error.code() != ExitCode::memory) throw;
      return std::string();
    }
  };
  // Unlike GPUs do not share choices.
  std::string choice = tuning.agree ? tuning.agree(stored, own) : own();
  // Another rank may be the first to ask in a later run, which is to choose the same.
  if (tuning.agree && !choice.empty()) keep_code(cache_folder(), stored, choice);
  // Ranks also keep an empty choice, since they would differ otherwise.
  if (!choice.empty() || tuning.agree) tuning.made[named] = choice;
  return choice;
}

}  // namespace dltrain
