// Kernel classes of the ops of texts in slots, and of recurrent state between batches.
#include "cuda/decoding.h"

#include "cuda/makers.h"
#include "tensor/shape.h"

namespace dltrain {
namespace {

const int32_t* numbers(const Bindings& b, size_t i) {
  return static_cast<const int32_t*>(b.inputs[i]);
}

class TokenPositions final : public Kernel {
 public:
  explicit TokenPositions(const KernelRequest& r)
      : samples_(r.outputs[0].shape[0]),
        tokens_(r.outputs[0].shape[1]),
        limit_(r.attributes.integer("limit")) {}
  void bind(const Bindings& b) override {
    positions_ = numbers(b, 0);
    y_ = static_cast<int32_t*>(b.outputs[0]);
  }
  void run(Stream& stream) override {
    launch_token_positions(positions_, samples_, tokens_, limit_, y_, stream.native());
  }

 private:
  int64_t samples_, tokens_, limit_;
  const int32_t* positions_ = nullptr;
  int32_t* y_ = nullptr;
};

// Bytes of one index of the first `axes` axes.
int64_t row_bytes(const TensorSpec& spec, int axes) {
  return spec.shape.elements(axes, spec.shape.rank()) *
         static_cast<int64_t>(dtype_size(spec.dtype));
}

class LastToken final : public Kernel {
 public:
  explicit LastToken(const KernelRequest& r)
      : copy_{r.inputs[0].shape[0], r.inputs[0].shape[1], row_bytes(r.inputs[0], 2)} {}
  void bind(const Bindings& b) override {
    x_ = b.inputs[0];
    counts_ = numbers(b, 1);
    y_ = b.outputs[0];
  }
  void run(Stream& stream) override { launch_last_token(copy_, x_, counts_, y_, stream.native()); }

 private:
  RowCopy copy_;
  const void* x_ = nullptr;
  const int32_t* counts_ = nullptr;
  void* y_ = nullptr;
};

class SlotState final : public Kernel {
 public:
  explicit SlotState(const KernelRequest& r)
      : copy_{r.outputs[0].shape[0], 1, row_bytes(r.outputs[0], 1)} {}
  void bind(const Bindings& b) override {
    state_ = b.inputs[0];
    positions_ = numbers(b, 1);
    slots_ = numbers(b, 2);
    y_ = b.outputs[0];
  }
  void run(Stream& stream) override {
    launch_slot_state(copy_, state_, positions_, slots_, y_, stream.native());
  }

 private:
  RowCopy copy_;
  const void* state_ = nullptr;
  const int32_t *positions_ = nullptr, *slots_ = nullptr;
  void* y_ = nullptr;
};

class SlotStateUpdate final : public Kernel {
 public:
  explicit SlotStateUpdate(const KernelRequest& r)
      : copy_{r.inputs[1].shape[0], r.inputs[1].shape[1], row_bytes(r.inputs[0], 1)} {}
  void bind(const Bindings& b) override {
    state_ = b.inputs[0];
    y_ = b.inputs[1];
    counts_ = numbers(b, 2);
    slots_ = numbers(b, 3);
  }
  void run(Stream& stream) override {
    launch_slot_state_update(copy_, state_, y_, counts_, slots_, stream.native());
  }

 private:
  RowCopy copy_;
  void* state_ = nullptr;
  const void* y_ = nullptr;
  const int32_t *counts_ = nullptr, *slots_ = nullptr;
};

CarryCall carry_call(const TensorSpec& micro_batch, const TensorSpec& all) {
  return {.samples = micro_batch.shape[0],
          .rows = all.shape[0],
          .row_bytes = row_bytes(micro_batch, 1)};
}

class CarriedState final : public Kernel {
 public:
  explicit CarriedState(const KernelRequest& r) : call_(carry_call(r.outputs[0], r.inputs[1])) {
    call_.steps = r.attributes.integer("steps");
  }
  void bind(const Bindings& b) override {
    step_ = static_cast<const StepState*>(b.inputs[0]);
    state_ = b.inputs[1];
    y_ = b.outputs[0];
  }
  void run(Stream& stream) override {
    launch_carried_state(call_, step_, state_, y_, stream.native());
  }

 private:
  CarryCall call_;
  const StepState* step_ = nullptr;
  const void* state_ = nullptr;
  void* y_ = nullptr;
};

class CarryState final : public Kernel {
 public:
  CarryState(const KernelRequest& r, bool others_zero)
      : call_(carry_call(r.inputs[1], r.outputs[0])), others_zero_(others_zero) {}
  void bind(const Bindings& b) override {
    step_ = static_cast<const StepState*>(b.inputs[0]);
    x_ = b.inputs[1];
    y_ = b.outputs[0];
  }
  void run(Stream& stream) override {
    launch_carry_state(call_, step_, x_, y_, others_zero_, stream.native());
  }

 private:
  CarryCall call_;
  bool others_zero_;
  const StepState* step_ = nullptr;
  const void* x_ = nullptr;
  void* y_ = nullptr;
};

class CarriedUpdate final : public Kernel {
 public:
  explicit CarriedUpdate(const KernelRequest& r)
      : bytes_(static_cast<int64_t>(r.outputs[0].bytes())) {}
  void bind(const Bindings& b) override {
    step_ = static_cast<const StepState*>(b.inputs[0]);
    next_ = b.inputs[2];
    state_ = b.outputs[0];
  }
  void run(Stream& stream) override {
    launch_carried_update(bytes_, step_, next_, state_, stream.native());
  }

 private:
  int64_t bytes_;
  const StepState* step_ = nullptr;
  const void* next_ = nullptr;
  void* state_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> make_cuda_token_positions(const KernelRequest& request) {
  return std::make_unique<TokenPositions>(request);
}
std::unique_ptr<Kernel> make_cuda_last_token(const KernelRequest& request) {
  return std::make_unique<LastToken>(request);
}
std::unique_ptr<Kernel> make_cuda_slot_state(const KernelRequest& request) {
  return std::make_unique<SlotState>(request);
}
std::unique_ptr<Kernel> make_cuda_slot_state_update(const KernelRequest& request) {
  return std::make_unique<SlotStateUpdate>(request);
}
std::unique_ptr<Kernel> make_cuda_carried_state(const KernelRequest& request) {
  return std::make_unique<CarriedState>(request);
}
std::unique_ptr<Kernel> make_cuda_carry_state(const KernelRequest& request) {
  return std::make_unique<CarryState>(request, true);
}
std::unique_ptr<Kernel> make_cuda_carry_state_in_place(const KernelRequest& request) {
  return std::make_unique<CarryState>(request, false);
}
std::unique_ptr<Kernel> make_cuda_carried_update(const KernelRequest& request) {
  return std::make_unique<CarriedUpdate>(request);
}

}  // namespace dltrain
