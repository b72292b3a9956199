// cross_entropy: negative log likelihood of integer targets under softmax. A target of −100 is not
// counted.
#include "base/error.h"
#include "nn/loss.h"

namespace dltrain {
namespace {

struct CrossEntropy final : Loss {
  double label_smoothing = 0;

  void describe(Fields& f) override {
    f.number("label_smoothing", label_smoothing,
             {.doc = "Share of the target distribution that is spread evenly over all classes",
              .min = 0,
              .below = 1,
              .known_as = {"smoothing"}});
  }

  LossOutput emit(LayerContext& c, ValueId output, ValueId targets,
                  const TargetInfo&) const override {
    const auto out =
        c.builder().emit("softmax_cross_entropy", {output, targets},
                         {{"ignore_index", int64_t{-100}}, {"label_smoothing", label_smoothing}});
    return {out[0], {{"accuracy", out[2]}}};
  }

  TensorSpec targets(const TensorSpec& output, const TargetInfo& info) const override {
    if (output.shape.rank() < 2) {
      fail(ExitCode::usage, "cross_entropy expects one vector of logits a sample, got {}",
           to_string(output.shape));
    }
    const TensorSpec labels{
        Shape(output.shape.dims().first(static_cast<size_t>(output.shape.rank() - 1))), DType::i32};
    expect_target_sample(kind, info, labels);
    return labels;
  }
  int64_t classes(const TensorSpec& output) const override { return output.shape[-1]; }
};

}  // namespace

const KindTable<Loss>& loss_table() {
  static const KindTable<Loss> table{
      "loss",
      {{"cross_entropy", "softmax and negative log likelihood of integer targets",
        make_kind_of<CrossEntropy>}}};
  return table;
}

}  // namespace dltrain
