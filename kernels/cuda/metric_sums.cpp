// Kernel class of confusion_matrix, top_k_correct, regression_sums and binary_counts.
#include "cuda/metric_sums.h"

#include "cuda/makers.h"

namespace dltrain {
namespace {

class MetricSums final : public Kernel {
 public:
  explicit MetricSums(const MetricCall& call) : call_(call) {}
  void bind(const Bindings& b) override {
    x_ = b.inputs[0];
    targets_ = b.inputs[1];
    sums_ = static_cast<double*>(b.outputs[0]);
  }
  void run(Stream& stream) override {
    launch_metric_sums(call_, x_, targets_, sums_, stream.native());
  }

 private:
  MetricCall call_;
  const void *x_ = nullptr, *targets_ = nullptr;
  double* sums_ = nullptr;
};

MetricCall::Kind kind_of(std::string_view op) {
  return op == "confusion_matrix"  ? MetricCall::Kind::confusion
         : op == "top_k_correct"   ? MetricCall::Kind::top_k
         : op == "regression_sums" ? MetricCall::Kind::regression
                                   : MetricCall::Kind::binary;
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_metric_sums(const KernelRequest& request) {
  const TensorSpec& x = request.inputs[0];
  if (x.dtype != DType::f32 && x.dtype != DType::f64) return nullptr;
  MetricCall call{.kind = kind_of(request.op),
                  .dtype = x.dtype,
                  .k = request.attributes.integer("k", 1),
                  .accumulate = request.accumulate};
  const bool labels = request.inputs[1].dtype == DType::i32;
  call.width = labels ? x.shape[-1] : x.shape.elements(1, x.shape.rank());
  call.rows = labels ? request.inputs[1].shape.elements() : x.shape[0];
  return std::make_unique<MetricSums>(call);
}

}  // namespace dltrain
