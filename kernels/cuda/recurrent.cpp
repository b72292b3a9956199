// Kernel classes of recurrent and its backward: for each token a product by the engine's matmul
// (cuBLASLt, or the plain kernel) and the units (cuda/recurrent.cu); the gradient of the weight is
// one product over all tokens. The sequence of launches is fixed, so it can be captured.
//
// cuDNN's recurrent networks include the input projection, which for this op is a separate matmul;
// they serve recurrent_network instead (cuda/vendor/cudnn_recurrent.cpp).
#include "cuda/recurrent.h"

#include <vector>

#include "base/error.h"
#include "cuda/makers.h"
#include "cuda/reduce.h"
#include "cuda/tables.h"
#include "ops/rules.h"
#include "shared/kernel_part.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

// Returns a matmul of the engine as part of a kernel.
KernelPart product(const KernelRequest& request, const TensorSpec& a, const TensorSpec& b,
                   const TensorSpec& y, Attributes attributes, bool accumulate,
                   WorkspaceParts& scratch) {
  if (rounds_to_tf32(request.attributes)) attributes.set("math", std::string("tf32"));
  return {cuda_engine(),
          request,
          {.op = "matmul",
           .inputs = {a, b},
           .outputs = {y},
           .attributes = attributes,
           .accumulate = accumulate},
          scratch};
}

class Recurrent {
 public:
  explicit Recurrent(const KernelRequest& r)
      : call_{recurrent_sizes(r.outputs[0].shape, r.attributes), r.inputs[0].dtype},
        wide_(accumulation_dtype(call_.dtype)),
        product_(product(r, {Shape{call_.samples, call_.hidden}, call_.dtype}, r.inputs[1],
                         {Shape{call_.samples, call_.width()}, wide_}, {{"transpose_b", true}},
                         false, scratch_)),
        product_at_(scratch_.add(call_.samples * call_.width(), wide_)),
        cell_at_(scratch_.add(call_.samples * call_.hidden, wide_)),
        state_at_(scratch_.add(call_.samples * call_.hidden, call_.dtype)) {}

  size_t workspace_bytes() const { return scratch_.total(); }

  struct Call {
    RecurrentData data;
    BoundCall product;
  };
  Call operator()(const Bindings& b) const {
    auto* workspace = static_cast<std::byte*>(b.workspace);
    const RecurrentData data{.x = b.inputs[0],
                             .bias = optional_address(b.inputs, 2),
                             .initial_state = optional_address(b.inputs, 3),
                             .initial_cell = optional_address(b.inputs, 4),
                             .product = workspace + product_at_,
                             .cell = workspace + cell_at_,
                             .state = workspace + state_at_,
                             .y = b.outputs[0],
                             .gates = optional_address(b.outputs, 1),
                             .cells = optional_address(b.outputs, 2)};
    return {data, product_.bound(workspace, {data.state, b.inputs[1]}, {workspace + product_at_})};
  }

  void run(const Call& own, Stream& stream) const {
    launch_recurrent_start(call_, own.data, stream.native());
    for (int64_t i = 0; i < call_.tokens; ++i) {
      const bool has_product = i > 0 || own.data.initial_state != nullptr;
      if (has_product) own.product.run(stream);
      launch_recurrent_step(call_, own.data, i, has_product, stream.native());
    }
  }

 private:
  RecurrentCall call_;
  DType wide_;
  WorkspaceParts scratch_;
  KernelPart product_;
  size_t product_at_, cell_at_, state_at_;
};

class RecurrentBackward {
 public:
  explicit RecurrentBackward(const KernelRequest& r)
      : call_{recurrent_sizes(r.inputs[1].shape, r.attributes), r.inputs[1].dtype},
        wide_(accumulation_dtype(call_.dtype)),
        rows_(call_.samples * call_.tokens),
        // The result already contains the gradient that bypasses the product.
        product_(product(r, {Shape{call_.samples, call_.width()}, call_.dtype}, r.inputs[4],
                         {Shape{call_.samples, call_.hidden}, wide_}, {}, true, scratch_)),
        // dw = dzᵀ·h over all samples and tokens, h the state before each.
        weight_(product(r, {Shape{rows_, call_.width()}, call_.dtype},
                        {Shape{rows_, call_.hidden}, call_.dtype}, r.outputs[1],
                        {{"transpose_a", true}}, false, scratch_)),
        dstate_at_(scratch_.add(call_.samples * call_.hidden, wide_)),
        dcell_at_(scratch_.add(call_.samples * call_.hidden, wide_)),
        dz_at_(scratch_.add(call_.samples * call_.width(), call_.dtype)),
        before_at_(scratch_.add(rows_ * call_.hidden, call_.dtype)),
        bias_{.dtype = call_.dtype, .reduced = rows_, .inner = call_.width()},
        bias_at_(scratch_.add(reduce_workspace_elements(bias_), wide_)) {
    if (call_.kind == RecurrentKind::gru) {
      dz_all_at_ = scratch_.add(rows_ * call_.width(), call_.dtype);
    }
  }

  size_t workspace_bytes() const { return scratch_.total(); }

  struct Call {
    RecurrentBackwardData data;
    void *before, *bias_scratch, *db;
    BoundCall product, weight;
  };
  Call operator()(const Bindings& b) const {
    auto* workspace = static_cast<std::byte*>(b.workspace);
    const bool separate = call_.kind == RecurrentKind::gru;
    const RecurrentBackwardData data{.dy = b.inputs[0],
                                     .y = b.inputs[1],
                                     .gates = b.inputs[2],
                                     .cells = b.inputs[3],
                                     .initial_state = b.inputs[6],
                                     .initial_cell = b.inputs[7],
                                     .dstate = workspace + dstate_at_,
                                     .dcell = workspace + dcell_at_,
                                     .dx = b.outputs[0],
                                     .dz = workspace + dz_at_,
                                     .dz_all = separate ? workspace + dz_all_at_ : b.outputs[0]};
    std::byte* before = workspace + before_at_;
    return {data,
            before,
            workspace + bias_at_,
            optional_address(b.outputs, 2),
            product_.bound(workspace, {data.dz, b.inputs[4]}, {data.dstate}),
            weight_.bound(workspace, {data.dz_all, before}, {b.outputs[1]})};
  }

  void run(const Call& own, Stream& stream) const {
    const RecurrentBackwardData& data = own.data;
    for (int64_t i = call_.tokens - 1; i >= 0; --i) {
      launch_recurrent_backward_step(call_, data, i, stream.native());
      if (i > 0) own.product.run(stream);
    }
    launch_states_before(call_, data.y, data.initial_state, own.before, stream.native());
    own.weight.run(stream);
    if (own.db != nullptr) {
      launch_reduce(bias_, data.dz_all, own.db, own.bias_scratch, stream.native());
    }
  }

 private:
  RecurrentCall call_;
  DType wide_;
  int64_t rows_;  // samples · tokens
  WorkspaceParts scratch_;
  KernelPart product_, weight_;
  size_t dstate_at_, dcell_at_, dz_at_, before_at_;
  ReduceCall bias_;
  size_t bias_at_, dz_all_at_ = 0;
};

// A kernel of which `op` makes the call for its addresses and runs it.
template <typename Op>
std::unique_ptr<Kernel> make_recurrent_kernel(const KernelRequest& request) {
  const auto op = std::make_shared<const Op>(request);
  return make_prepared_kernel([op](const Bindings& b) { return (*op)(b); },
                              [op](const typename Op::Call& call, const Bindings&, Stream& stream) {
                                op->run(call, stream);
                              },
                              op->workspace_bytes());
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_recurrent(const KernelRequest& request) {
  return make_recurrent_kernel<Recurrent>(request);
}
std::unique_ptr<Kernel> make_cuda_recurrent_backward(const KernelRequest& request) {
  return make_recurrent_kernel<RecurrentBackward>(request);
}

}  // namespace dltrain
