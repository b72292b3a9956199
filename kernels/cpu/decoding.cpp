// The ops of texts in slots: copies of a few rows.
#include <algorithm>
#include <cstring>

#include "cpu/makers.h"
#include "cpu/support.h"

namespace dltrain {
namespace {

class TokenPositions final : public Kernel {
 public:
  explicit TokenPositions(const KernelRequest& r)
      : count_(r.outputs[0].shape.elements()),
        tokens_(r.attributes.integer("tokens")),
        limit_(r.attributes.integer("limit")) {}

  void bind(const Bindings& b) override {
    positions_ = input<const int32_t>(b, 0);
    y_ = output<int32_t>(b, 0);
  }
  void run(Stream&) override {
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t place = positions_[i / tokens_] + i % tokens_;
      y_[i] = static_cast<int32_t>(std::min(place, limit_ - 1));
    }
  }

 private:
  int64_t count_, tokens_, limit_;
  const int32_t* positions_ = nullptr;
  int32_t* y_ = nullptr;
};

class LastToken final : public Kernel {
 public:
  explicit LastToken(const KernelRequest& r)
      : samples_(r.inputs[0].shape[0]),
        tokens_(r.inputs[0].shape[1]),
        bytes_(r.outputs[0].bytes() / static_cast<size_t>(samples_)) {}

  void bind(const Bindings& b) override {
    x_ = input<const std::byte>(b, 0);
    counts_ = input<const int32_t>(b, 1);
    y_ = output<std::byte>(b, 0);
  }
  void run(Stream&) override {
    for (int64_t n = 0; n < samples_; ++n) {
      const int64_t last = std::clamp<int64_t>(counts_[n] - 1, 0, tokens_ - 1);
      std::memcpy(y_ + static_cast<size_t>(n) * bytes_,
                  x_ + static_cast<size_t>(n * tokens_ + last) * bytes_, bytes_);
    }
  }

 private:
  int64_t samples_, tokens_;
  size_t bytes_;  // of a token
  const std::byte* x_ = nullptr;
  const int32_t* counts_ = nullptr;
  std::byte* y_ = nullptr;
};

class SlotState final : public Kernel {
 public:
  explicit SlotState(const KernelRequest& r)
      : samples_(r.outputs[0].shape[0]),
        bytes_(r.outputs[0].bytes() / static_cast<size_t>(samples_)) {}

  void bind(const Bindings& b) override {
    state_ = input<const std::byte>(b, 0);
    positions_ = input<const int32_t>(b, 1);
    slots_ = input<const int32_t>(b, 2);
    y_ = output<std::byte>(b, 0);
  }
  void run(Stream&) override {
    for (int64_t n = 0; n < samples_; ++n) {
      std::byte* to = y_ + static_cast<size_t>(n) * bytes_;
      if (positions_[n] == 0) {
        std::memset(to, 0, bytes_);
      } else {
        std::memcpy(to, state_ + static_cast<size_t>(slots_[n]) * bytes_, bytes_);
      }
    }
  }

 private:
  int64_t samples_;
  size_t bytes_;  // of a slot
  const std::byte* state_ = nullptr;
  const int32_t *positions_ = nullptr, *slots_ = nullptr;
  std::byte* y_ = nullptr;
};

class SlotStateUpdate final : public Kernel {
 public:
  explicit SlotStateUpdate(const KernelRequest& r)
      : samples_(r.inputs[1].shape[0]),
        tokens_(r.inputs[1].shape[1]),
        bytes_(r.inputs[0].bytes() / static_cast<size_t>(r.inputs[0].shape[0])) {}

  void bind(const Bindings& b) override {
    state_ = input<std::byte>(b, 0);
    y_ = input<const std::byte>(b, 1);
    counts_ = input<const int32_t>(b, 2);
    slots_ = input<const int32_t>(b, 3);
  }
  void run(Stream&) override {
    for (int64_t n = 0; n < samples_; ++n) {
      if (counts_[n] <= 0) continue;
      std::memcpy(state_ + static_cast<size_t>(slots_[n]) * bytes_,
                  y_ + static_cast<size_t>(n * tokens_ + counts_[n] - 1) * bytes_, bytes_);
    }
  }

 private:
  int64_t samples_, tokens_;
  size_t bytes_;  // of a slot
  std::byte* state_ = nullptr;
  const std::byte* y_ = nullptr;
  const int32_t *counts_ = nullptr, *slots_ = nullptr;
};

}  // namespace

MadeKernel make_token_positions(const KernelRequest& request) {
  return std::make_unique<TokenPositions>(request);
}
MadeKernel make_last_token(const KernelRequest& request) {
  return std::make_unique<LastToken>(request);
}
MadeKernel make_slot_state(const KernelRequest& request) {
  return std::make_unique<SlotState>(request);
}
MadeKernel make_slot_state_update(const KernelRequest& request) {
  return std::make_unique<SlotStateUpdate>(request);
}

}  // namespace dltrain
