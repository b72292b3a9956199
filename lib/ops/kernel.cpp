#include "ops/kernel.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <limits>
#include <new>

#include <fmt/format.h>

#include "device/engine.h"
#include "ops/kernel_refused.h"

namespace dltrain {

namespace {

// "matmul(f32[64, 8], f32[8, 4])"
std::string describe(const KernelRequest& request) {
  std::string inputs;
  for (const TensorSpec& spec : request.inputs) {
    inputs += (inputs.empty() ? "" : ", ") + to_string(spec);
  }
  return fmt::format("{}({})", request.op, inputs);
}

// Vendor libraries give no reason when they refuse tensors of this size.
bool is_huge(std::span<const TensorSpec> tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const TensorSpec& spec) {
    return spec.bytes() > size_t{std::numeric_limits<int32_t>::max()};
  });
}

// Layers with equal problems share a notice.
void add_notice(const KernelRequest& request, std::string_view variant, const KernelRefused& why) {
  const std::string reason = why.what();
  request.device.notices().add(
      fmt::format("{} {} {}", request.op, variant, reason.substr(0, reason.find('\n'))),
      fmt::format("{} does not run {}, another kernel does: {}", variant, describe(request),
                  reason));
}

struct AddedKernels {
  std::string_view engine;
  std::span<const KernelRow> rows;
};

std::vector<AddedKernels>& added_kernels() {
  static std::vector<AddedKernels> added;
  return added;
}

}  // namespace

void add_kernels(std::string_view engine, std::span<const KernelRow> rows) {
  added_kernels().push_back({engine, rows});
}

std::vector<const KernelRow*> kernel_rows(const Engine& engine, std::string_view op) {
  std::vector<const KernelRow*> out;
  const auto add = [&](std::span<const KernelRow> rows) {
    for (const KernelRow& row : rows) {
      if (row.op == op) out.push_back(&row);
    }
  };
  for (const AddedKernels& added : added_kernels()) {
    if (added.engine == engine.name) add(added.rows);
  }
  add({engine.kernels, engine.kernel_count});
  return out;
}

FoundKernel find_kernel(const Engine& engine, const KernelRequest& request) {
  for (const KernelRow* row : kernel_rows(engine, request.op)) {
    if (request.accumulate && !row->accumulates) continue;
    try {
      if (auto kernel = row->make(request)) return {std::move(kernel), row};
    } catch (const KernelRefused& why) {
      add_notice(request, row->variant, why);
    } catch (const Error&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {  // a vendor library's own
      const bool too_large = is_huge(request.inputs) || is_huge(request.outputs);
      fail(too_large ? ExitCode::memory : ExitCode::usage, "the {} engine cannot prepare {}: {}{}",
           engine.name, describe(request), error.what(),
           too_large ? "; the tensors are too large" : "");
    }
  }
  if (request.accumulate) return {};
  fail(ExitCode::usage, "the {} engine has no kernel for {} with {}", engine.name,
       describe(request),
       request.attributes.empty() ? "no attributes" : to_string(request.attributes));
}

std::optional<int64_t> kept_bytes(const Engine& engine, const KernelRequest& request) {
  for (const KernelRow* row : kernel_rows(engine, request.op)) {
    if (row->kept_bytes == nullptr) continue;
    try {
      if (const auto bytes = row->kept_bytes(request)) return bytes;
    } catch (const KernelRefused& why) {
      add_notice(request, row->variant, why);
    }
  }
  return {};
}

std::vector<std::string> describe_kernels(const Engine& engine, Device* device) {
  std::vector<std::string> out;
  for (const std::string_view op : {"matmul", "conv2d", "attention", "fused_elementwise"}) {
    std::string lacks;
    for (const KernelRow* row : kernel_rows(engine, op)) {
      const std::string why = row->missing != nullptr ? row->missing(device) : "";
      if (why.empty()) {
        out.push_back(fmt::format("{}: {}{}", op, row->variant, lacks));
        break;
      }
      lacks += fmt::format(" (not {}: {})", row->variant, why);
    }
  }
  return out;
}

}  // namespace dltrain
