// Recurrent state between batches (lib/ops/carry.cpp): a few rows are copied once a micro-step.
#include <algorithm>

#include "cpu/makers.h"
#include "cpu/support.h"
#include "ops/step_state.h"

namespace dltrain {
namespace {

// The rows of a micro-batch within the state of all streams.
class Rows : public Kernel {
 public:
  Rows(const TensorSpec& micro_batch, const TensorSpec& all)
      : count_(micro_batch.shape.elements()), rows_(all.shape[0]), width_(all.shape[1]) {}

 protected:
  int64_t begin() const { return step_->in.sample_offset % rows_ * width_; }
  int64_t all() const { return rows_ * width_; }

  int64_t count_, rows_, width_;
  const StepState* step_ = nullptr;
};

class CarriedState final : public Rows {
 public:
  explicit CarriedState(const KernelRequest& r)
      : Rows(r.outputs[0], r.inputs[1]), steps_(r.attributes.integer("steps")) {}

  void bind(const Bindings& b) override {
    step_ = input<const StepState>(b, 0);
    state_ = input<const float>(b, 1);
    out_ = output<float>(b, 0);
  }
  void run(Stream&) override {
    if (step_->in.step % steps_ == 0) {
      std::fill_n(out_, count_, 0.0f);
    } else {
      std::copy_n(state_ + begin(), count_, out_);
    }
  }

 private:
  int64_t steps_;
  const float* state_ = nullptr;
  float* out_ = nullptr;
};

class CarryState final : public Rows {
 public:
  explicit CarryState(const KernelRequest& r)
      : Rows(r.inputs[1], r.outputs[0]), accumulate_(r.accumulate) {}

  void bind(const Bindings& b) override {
    step_ = input<const StepState>(b, 0);
    x_ = input<const float>(b, 1);
    out_ = output<float>(b, 0);
  }
  void run(Stream&) override {
    if (!accumulate_) std::fill_n(out_, all(), 0.0f);
    float* out = out_ + begin();
    for (int64_t i = 0; i < count_; ++i) out[i] += x_[i];
  }

 private:
  bool accumulate_;
  const float* x_ = nullptr;
  float* out_ = nullptr;
};

class CarryStateInPlace final : public Rows {
 public:
  explicit CarryStateInPlace(const KernelRequest& r) : Rows(r.inputs[1], r.outputs[0]) {}

  void bind(const Bindings& b) override {
    step_ = input<const StepState>(b, 0);
    x_ = input<const float>(b, 1);
    state_ = output<float>(b, 0);
  }
  void run(Stream&) override { std::copy_n(x_, count_, state_ + begin()); }

 private:
  const float* x_ = nullptr;
  float* state_ = nullptr;
};

class CarriedUpdate final : public Kernel {
 public:
  explicit CarriedUpdate(const KernelRequest& r) : count_(r.outputs[0].shape.elements()) {}

  void bind(const Bindings& b) override {
    step_ = input<const StepState>(b, 0);
    next_ = input<const float>(b, 2);
    state_ = output<float>(b, 0);
  }
  void run(Stream&) override {
    if (step_->out.finite != 0) std::copy_n(next_, count_, state_);
  }

 private:
  int64_t count_;
  const StepState* step_ = nullptr;
  const float* next_ = nullptr;
  float* state_ = nullptr;
};

template <typename K>
MadeKernel make_carry(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  return std::make_unique<K>(request);
}

}  // namespace

MadeKernel make_carried_state(const KernelRequest& request) {
  return make_carry<CarriedState>(request);
}
MadeKernel make_carry_state(const KernelRequest& request) {
  return make_carry<CarryState>(request);
}
MadeKernel make_carry_state_in_place(const KernelRequest& request) {
  return make_carry<CarryStateInPlace>(request);
}
MadeKernel make_carried_update(const KernelRequest& request) {
  return make_carry<CarriedUpdate>(request);
}

}  // namespace dltrain
