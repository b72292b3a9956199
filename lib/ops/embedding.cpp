// embedding(ids, weight): y = the rows of weight with the indices ids.
//
//   ids i32 [...]; weight [V, D] → y [..., D]
//
// embedding_backward(ids, dy) → dweight [V, D] in the accumulation dtype: every row is the sum of
// the dy of its ids, in the order of the ids. Attributes: rows (integer: V), padding_idx (integer,
// −1: none): the row whose gradient is 0.
//
// The data path rejects ids outside [0, V) before they get here.
#include "ops/definitions.h"
#include "ops/rules.h"
#include "ops/token_axis.h"

namespace dltrain {
namespace {

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
                                   .signature = "ids[N,*]:i32 weight[V,D] -> y[N,*,D]",
                                   .gradient = gradient_embedding,
                                   .cost = cost_embedding,
                                   .autocast = CastPolicy::residual,
                                   .token_axis = tokens_of_embedding};
constinit const OpDef kEmbeddingBackwardOp{
    .name = "embedding_backward",
    .doc = "dweight of embedding",
    .signature = "ids[N,*]:i32 dy[N,*,D] -> dweight[V,D]:sum; V=rows",
    .cost = cost_embedding_backward};

}  // namespace dltrain
