// Ops that place the rows of mixtures of experts that drop tokens or are divided over ranks
// (passes/expert_cut.h). Ranks that own the experts in equal parts, in order, exchange rows in
// buffers of fixed size; which of their rows are in use is data. An index of −1 (kNoRow) stands for
// no row, which is zero where it is read, −2 (kOverflowRow) for one that found no place, which is
// NaN: a step with one is not finite and writes no state.
//
// place_rows(rows [..., K], offsets [E + 1] [, row_sources [R], whole_rows [..., K], whole_offsets
//   [E + 1]]) → rows, sources, counts, sent, sums: from the rows of top_k_routing, sorted by
//   expert, to rows of the buffers. Attributes: owners (ranks), buffer (rows for each of them),
//   capacity (rows that an expert takes of these tokens, the first ones; 0: all). If the tokens are
//   some of a micro-batch, in its order, the capacity is that of all its tokens: whole_rows are the
//   rows of these tokens in the order of all, whole_offsets where experts begin in it, and
//   row_sources the sources of top_k_routing. rows [..., K] is the place of each pair, owner ·
//   buffer + the number of the pair among those of its owner, sorted by expert; −1 if the expert
//   has reached its capacity. sources [owners · buffer] is the inverse. counts [owners, E /
//   owners]: rows of each expert, sent [owners]: of each owner. sums f64 [2 + needed_bins(owners)]:
//   the pairs dropped for capacity, those without room in the buffer, then at bin i a 1 if 2^(i/8)
//   times the average of rows for an owner is the least buffer with room for all.
// sort_received(counts [S, L]) → sources, rows, offsets, received: the order by expert, then rank,
//   of rows that S ranks have sent to L experts. Attribute buffer. Rank s's rows begin at s ·
//   buffer and are sorted by expert. sources [S · buffer]: for each place in the order where the
//   row is; rows [S · buffer, 1] its inverse; both −1 where there is no row. offsets [L + 1]: the
//   places at which experts begin. received [S]: the rows of each rank.
//
// all_to_all_begin(x [P · ...] [, sent [P], received [P]]) → y: starts to send part r of x to rank
// r
//   of the group, for P equal parts along the first dimension; part r of y comes from rank r. Only
//   the first sent[r] rows of part r of x and received[r] of part r of y need to be moved.
// all_to_all_end(y, x, sent, received): later work waits for y; the others stay as they are until
//   then. Attributes of both: slot, over.
#include "ops/expert_places.h"

#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

SpecList infer_place(SpecSpan inputs, const Attributes& attributes) {
  const int64_t owners = attributes.integer("owners"), buffer = attributes.integer("buffer");
  const int64_t experts = inputs[1].shape[0] - 1;
  check_internal(owners > 0 && experts % owners == 0, "{} owners of {} experts", owners, experts);
  return {inputs[0],
          {Shape{owners * buffer}, DType::i32},
          {Shape{owners, experts / owners}, DType::i32},
          {Shape{owners}, DType::i32},
          {Shape{2 + needed_bins(owners)}, DType::f64}};
}

SpecList infer_sort(SpecSpan inputs, const Attributes& attributes) {
  const int64_t ranks = inputs[0].shape[0], rows = ranks * attributes.integer("buffer");
  return {{Shape{rows}, DType::i32},
          {Shape{rows, 1}, DType::i32},
          {Shape{inputs[0].shape[1] + 1}, DType::i32},
          {Shape{ranks}, DType::i32}};
}

}  // namespace

int64_t needed_bins(int64_t owners) {
  int64_t bins = 0;
  for (int64_t reach = 1; reach < owners; reach *= 2) bins += 8;
  return owners > 1 ? bins + 1 : 0;
}

constinit const OpDef kPlaceRowsOp{.name = "place_rows",
                                   .doc = "places of rows in the buffers of the experts' ranks",
                                   .signature =
                                       "rows[*,K]:i32 offsets[F]:i32 row_sources[R]:i32? "
                                       "whole_rows[*,K]:i32? whole_offsets[F]:i32?",
                                   .infer = infer_place};
constinit const OpDef kSortReceivedOp{.name = "sort_received",
                                      .doc = "the order by expert of rows from several ranks",
                                      .signature = "counts[S,L]:i32",
                                      .infer = infer_sort};
constinit const OpDef kAllToAllBeginOp{.name = "all_to_all_begin",
                                       .doc = "starts an exchange of parts between all ranks",
                                       .signature = "x[*]:any sent[P]:i32? received[P]:i32?",
                                       .infer = same_as_first,
                                       .has_effect = true,
                                       .message = MessageKind::all_to_all,
                                       .slot = SlotUse::begins};
constinit const OpDef kAllToAllEndOp{
    .name = "all_to_all_end",
    .doc = "waits for an exchange of parts",
    .signature = "y[*]:any x[*]:any sent[P]:i32? received[P]:i32? -> y!",
    .has_effect = true,
    .message = MessageKind::all_to_all,
    .slot = SlotUse::ends};

}  // namespace dltrain
