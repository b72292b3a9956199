// The ops on slots of lib/ops/decoding.cpp: copies of a few rows.
#include <algorithm>
#include <cstring>

#include "cpu/makers.h"
#include "shared/make_kernel.h"

namespace dltrain {

std::unique_ptr<Kernel> make_token_positions(const KernelRequest& request) {
  const int64_t count = request.outputs[0].shape.elements();
  const int64_t tokens = request.attributes.integer("tokens");
  const int64_t limit = request.attributes.integer("limit");
  return make_kernel([=](const Bindings& b, Stream&) {
    const auto* positions = b.input<int32_t>(0);
    auto* y = b.output<int32_t>(0);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t position = positions[i / tokens] + i % tokens;
      y[i] = static_cast<int32_t>(std::min(position, limit - 1));
    }
  });
}

std::unique_ptr<Kernel> make_last_token(const KernelRequest& request) {
  const int64_t samples = request.inputs[0].shape[0], tokens = request.inputs[0].shape[1];
  const size_t bytes = request.outputs[0].bytes() / static_cast<size_t>(samples);  // of a token
  return make_kernel([=](const Bindings& b, Stream&) {
    const auto* x = b.input<std::byte>(0);
    const auto* counts = b.input<int32_t>(1);
    auto* y = b.output<std::byte>(0);
    for (int64_t n = 0; n < samples; ++n) {
      const int64_t last = std::clamp<int64_t>(counts[n] - 1, 0, tokens - 1);
      std::memcpy(y + static_cast<size_t>(n) * bytes,
                  x + static_cast<size_t>(n * tokens + last) * bytes, bytes);
    }
  });
}

std::unique_ptr<Kernel> make_slot_state(const KernelRequest& request) {
  const int64_t samples = request.outputs[0].shape[0];
  const size_t bytes = request.outputs[0].bytes() / static_cast<size_t>(samples);  // of a slot
  return make_kernel([=](const Bindings& b, Stream&) {
    const auto* state = b.input<std::byte>(0);
    const auto *positions = b.input<int32_t>(1), *slots = b.input<int32_t>(2);
    for (int64_t n = 0; n < samples; ++n) {
      std::byte* to = b.output<std::byte>(0) + static_cast<size_t>(n) * bytes;
      if (positions[n] == 0) {
        std::memset(to, 0, bytes);
      } else {
        std::memcpy(to, state + static_cast<size_t>(slots[n]) * bytes, bytes);
      }
    }
  });
}

std::unique_ptr<Kernel> make_slot_state_update(const KernelRequest& request) {
  const TensorSpec &state = request.inputs[0], &y = request.inputs[1];
  const int64_t samples = y.shape[0], tokens = y.shape[1];
  const size_t bytes = state.bytes() / static_cast<size_t>(state.shape[0]);  // of a slot
  return make_kernel([=](const Bindings& b, Stream&) {
    const auto *counts = b.input<int32_t>(2), *slots = b.input<int32_t>(3);
    for (int64_t n = 0; n < samples; ++n) {
      if (counts[n] <= 0) continue;
      std::memcpy(static_cast<std::byte*>(b.inputs[0]) + static_cast<size_t>(slots[n]) * bytes,
                  b.input<std::byte>(1) + static_cast<size_t>(n * tokens + counts[n] - 1) * bytes,
                  bytes);
    }
  });
}

}  // namespace dltrain
