#include "profile/limits.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "ops/kernel.h"

namespace dltrain {
namespace {

using LimitsClock = std::chrono::steady_clock;

constexpr double kSeconds = 0.15;  // of each measurement, at least

// Returns the least seconds of one run. Asynchronous devices get several runs at a time.
double least_seconds(const BoundCall& call, Stream& stream, int runs_at_once) {
  call.run(stream);
  stream.synchronize();
  double least = 1e9;
  int tries = 0;
  for (const auto start = LimitsClock::now();
       tries < 3 || std::chrono::duration<double>(LimitsClock::now() - start).count() < kSeconds;
       ++tries) {
    const auto begin = LimitsClock::now();
    for (int i = 0; i < runs_at_once; ++i) call.run(stream);
    stream.synchronize();
    least = std::min(least, std::chrono::duration<double>(LimitsClock::now() - begin).count());
  }
  return least / runs_at_once;
}

// Returns the least seconds of `op`; 0 if the engine has no kernel for it.
double time_op(const Engine& engine, Device& device, std::string_view op,
               const std::vector<TensorSpec>& inputs, const TensorSpec& output,
               const Attributes& attributes = {}) {
  FoundKernel found;
  try {
    found = find_kernel(engine, {.op = op,
                                 .attributes = attributes,
                                 .inputs = inputs,
                                 .outputs = {&output, 1},
                                 .device = device});
  } catch (const Error&) {
    return 0;
  }
  std::vector<Buffer> buffers;
  std::vector<void*> addresses;
  for (const TensorSpec& spec : inputs) buffers.emplace_back(device, spec.bytes());
  buffers.emplace_back(device, output.bytes());
  for (const Buffer& buffer : buffers) addresses.push_back(buffer.data());
  const Buffer workspace(device, found.kernel->workspace_bytes());
  const std::span<void*> all(addresses);
  const BoundCall call(*found.kernel, all.first(inputs.size()), all.last(1), workspace.data());
  const auto stream = device.make_stream();
  return least_seconds(call, *stream, device.properties().on_host ? 1 : 8);
}

// Returns the best rate of products of several sizes: small ones are interrupted less often, large
// ones use many cores better.
double product_flops(const Engine& engine, Device& device, DType dtype,
                     const std::vector<int64_t>& sizes, const Attributes& attributes = {}) {
  double best = 0;
  for (int64_t n : sizes) {
    const TensorSpec square{Shape{n, n}, dtype};
    const double seconds = time_op(engine, device, "matmul", {square, square}, square, attributes);
    const auto size = static_cast<double>(n);
    if (seconds > 0) best = std::max(best, 2 * size * size * size / seconds);
  }
  return best;
}

}  // namespace

double MachineLimits::flops(DType dtype) const {
  if (dtype == DType::u8) return 2 * flops_low;  // FP8, by the data sheets
  return is_low_precision(dtype) && flops_low > 0 ? flops_low : flops_f32;
}

MachineLimits find_limits(const Engine& engine, Device& device, DType low, bool tf32) {
  const DeviceProperties& p = device.properties();
  if (p.peak_bytes > 0 && p.peak_flops_f32 > 0) {
    return {.flops_f32 = tf32 ? p.peak_flops_low / 2 : p.peak_flops_f32,
            .flops_low = is_low_precision(low) ? p.peak_flops_low : 0,
            .bytes = p.peak_bytes,
            .source = "figures of the device"};
  }
  const bool host = p.on_host;
  const std::vector<int64_t> sizes =
      host ? std::vector<int64_t>{512, 1024} : std::vector<int64_t>{4096, 8192};
  const TensorSpec words{Shape{int64_t{1} << (host ? 25 : 28)}, DType::f32};
  MachineLimits out;
  out.flops_f32 =
      product_flops(engine, device, DType::f32, sizes,
                    tf32 && !host ? Attributes{{"math", std::string("tf32")}} : Attributes());
  if (is_low_precision(low)) out.flops_low = product_flops(engine, device, low, sizes);
  const double copy = time_op(engine, device, "identity", {words}, words);
  out.bytes = copy > 0 ? 2 * static_cast<double>(words.bytes()) / copy : 0;
  out.source = fmt::format("measured: products of {}³ and {}³, a copy of {} MiB", sizes[0],
                           sizes[1], words.bytes() >> 20);
  return out;
}

}  // namespace dltrain
