// embedding(ids, weight): y = the rows of weight with the indices ids.
//
//   ids i32 [...]; weight [V, D] → y [..., D]
//
// embedding_backward(ids, dy) → dweight [V, D] in the accumulation dtype: every row is the sum of
// the dy of its ids, in the order of the ids. Attributes: rows (integer: V), padding_idx (integer,
// −1: none): the row whose gradient is 0.
//
// The data path rejects ids outside [0, V) before they get here.
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"
#include "ops/token_axis.h"

namespace dltrain {
namespace {

void expect_ids(std::string_view op, const TensorSpec& ids) {
  expect_rank(op, "the ids", ids.shape, 1, Shape::kMaxRank - 1);
  expect_dtype(op, "ids", ids, DType::i32);
}

SpecList infer_embedding(SpecSpan inputs, const Attributes&) {
  expect_inputs("embedding", inputs, 2, 2);
  expect_ids("embedding", inputs[0]);
  expect_rank("embedding", "the weight", inputs[1].shape, 2, 2);
  expect_one_float_dtype("embedding", inputs.subspan(1));
  std::vector<int64_t> extents(inputs[0].shape.begin(), inputs[0].shape.end());
  extents.push_back(inputs[1].shape[1]);
  return {{Shape(extents), inputs[1].dtype}};
}

SpecList infer_embedding_backward(SpecSpan inputs, const Attributes& attributes) {
  expect_inputs("embedding_backward", inputs, 2, 2);
  expect_ids("embedding_backward", inputs[0]);
  expect_one_float_dtype("embedding_backward", inputs.subspan(1));
  const Shape& dy = inputs[1].shape;
  expect_rank("embedding_backward", "dy", dy, 2, Shape::kMaxRank);
  expect_shape("embedding_backward", "dy without its last axis",
               Shape(dy.dims().first(static_cast<size_t>(dy.rank() - 1))), inputs[0].shape);
  return {{Shape{attributes.integer("rows"), dy[-1]}, accumulation_dtype(inputs[1].dtype)}};
}

std::vector<ValueId> gradient_embedding(const GradientRequest& r) {
  Attributes attributes = r.attributes;
  attributes.set("rows", r.emitter.spec(r.inputs[1]).shape[0]);
  return {kNoValue,
          r.emitter.emit1("embedding_backward", {r.inputs[0], r.output_gradients[0]}, attributes)};
}

// Bytes count the rows that are read, not the whole weight.
Cost cost_embedding(SpecSpan inputs, SpecSpan outputs, const Attributes&) {
  return {0, static_cast<double>(inputs[0].bytes() + 2 * outputs[0].bytes())};
}
Cost cost_embedding_backward(SpecSpan inputs, SpecSpan outputs, const Attributes&) {
  return {static_cast<double>(inputs[1].shape.elements()),
          static_cast<double>(inputs[0].bytes() + inputs[1].bytes() + outputs[0].bytes())};
}

int tokens_of_embedding(const TokenAxes& node) {
  return node.axes[1] == kNoTokenAxis ? node.axes[0] : kMixesTokens;
}

}  // namespace

constinit const OpDef kEmbeddingOp{.name = "embedding",
                                   .doc = "the rows of weight with indices ids",
                                   .infer = infer_embedding,
                                   .gradient = gradient_embedding,
                                   .cost = cost_embedding,
                                   .autocast = CastPolicy::residual,
                                   .token_axis = tokens_of_embedding};
constinit const OpDef kEmbeddingBackwardOp{.name = "embedding_backward",
                                           .doc = "dweight of embedding",
                                           .infer = infer_embedding_backward,
                                           .cost = cost_embedding_backward};

}  // namespace dltrain
