// Kernel class of the plain matmul.
#include "cuda/plain_matmul.h"

#include "base/error.h"
#include "cuda/makers.h"
#include "cuda/matmul_sizes.h"

namespace dltrain {
namespace {

class PlainMatmul final : public Kernel {
 public:
  PlainMatmul(const PlainMatmulCall& call, bool has_bias) : call_(call), has_bias_(has_bias) {}
  void bind(const Bindings& bindings) override {
    a_ = bindings.inputs[0];
    b_ = bindings.inputs[1];
    bias_ = has_bias_ ? bindings.inputs[2] : nullptr;
    y_ = bindings.outputs[0];
  }
  void run(Stream& stream) override {
    launch_plain_matmul(call_, a_, b_, bias_, y_, stream.native());
  }

 private:
  PlainMatmulCall call_;
  bool has_bias_;
  const void* a_ = nullptr;
  const void* b_ = nullptr;
  const void* bias_ = nullptr;
  void* y_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> make_cuda_plain_matmul(const KernelRequest& request) {
  const DType dtype = request.inputs[0].dtype;
  if ((dtype != DType::f32 && dtype != DType::f64) || request.outputs[0].dtype != dtype) {
    return nullptr;
  }
  const MatmulSizes s(request);
  const std::string name = request.attributes.text("activation");
  const auto activation = elementwise_op(name.empty() ? "identity" : name);
  check_internal(activation.has_value(), "matmul: activation {}", name);
  const int64_t a_last = request.inputs[0].shape[-1], b_last = request.inputs[1].shape[1];
  const PlainMatmulCall call{.dtype = dtype,
                             .m = s.m,
                             .n = s.n,
                             .k = s.k,
                             .a_row = s.transpose_a ? 1 : a_last,
                             .a_inner = s.transpose_a ? a_last : 1,
                             .b_inner = s.transpose_b ? 1 : b_last,
                             .b_column = s.transpose_b ? b_last : 1,
                             .activation = *activation,
                             .accumulate = request.accumulate};
  return std::make_unique<PlainMatmul>(call, s.has_bias);
}

}  // namespace dltrain
