// embedding(ids, weight): y = the rows of weight with the indices ids.
//
//   ids i32 [...]; weight [V, D] → y [..., D]
//
// embedding_backward(ids, dy) → dweight [V, D] in the accumulation dtype: every row is the sum of
// the dy of its ids, in the order of the ids. Attributes: rows (integer: V), padding_idx (integer,
// −1: none): the row whose gradient is 0.
//
// first_row (integer, 0): the id of the first row of a shard, of all_rows (integer). Ids of rows
// that other ranks have give zeros, and their gradients belong to the other ranks. The data path
// rejects ids outside the whole table before they get here.
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

// The rows may be sharded: each id is one rank's, and the others add zeros.
std::optional<std::vector<Placement>> place_embedding(SpecSpan, const Attributes&,
                                                      std::span<const Placement> p) {
  const bool rows =
      p[1].kind == Placement::sharded && p[1].dimension == 0 && p[1].parts.size() == 1;
  return rows && p[0] == kReplicated ? std::optional(std::vector{kPartial}) : std::nullopt;
}

void localize_embedding(Attributes& attributes, const LocalNode& node) {
  const CutRange rows = cut_ranges(node.placements[1].parts, node.rank).front();
  const int64_t padding = attributes.integer("padding_idx", -1) - rows.offset;
  attributes.set("all_rows", whole_extent(node.placements[1].parts));
  attributes.set("first_row", rows.offset);
  attributes.set("padding_idx", padding >= 0 && padding < rows.extent ? padding : int64_t{-1});
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
                                   .place = place_embedding,
                                   .localize = localize_embedding,
                                   .cost = cost_embedding,
                                   .autocast = CastPolicy::residual,
                                   .token_axis = tokens_of_embedding};
constinit const OpDef kEmbeddingBackwardOp{
    .name = "embedding_backward",
    .doc = "dweight of embedding",
    .signature = "ids[N,*]:i32 dy[N,*,D] -> dweight[V,D]:sum; V=rows",
    .cost = cost_embedding_backward};

}  // namespace dltrain
