// Cuts of dimensions, and placement rules that ops share.
#include <algorithm>

#include "ops/rules.h"
#include "ops/shard_position.h"

namespace dltrain {

std::vector<CutRange> cut_ranges(const CutParts& parts, int rank) {
  std::vector<CutRange> out;
  int64_t begin = 0;  // of the part
  for (const CutPart& part : parts) {
    const int64_t first = std::min(part.length * (rank / part.copies), part.extent);
    out.push_back({begin + first, std::min(part.length, part.extent - first)});
    begin += part.extent;
  }
  return out;
}

int64_t cut_extent(const CutParts& parts, int rank) {
  int64_t sum = 0;
  for (const CutRange& range : cut_ranges(parts, rank)) sum += range.extent;
  return sum;
}

int64_t whole_extent(const CutParts& parts) {
  int64_t sum = 0;
  for (const CutPart& part : parts) sum += part.extent;
  return sum;
}

bool has_copies(const CutParts& parts) {
  return std::ranges::any_of(parts, [](const CutPart& part) { return part.copies > 1; });
}

bool is_possible(const CutParts& parts, int ranks) {
  return std::ranges::all_of(parts, [&](const CutPart& part) {
    return ranks % part.copies == 0 && part.length * (ranks / part.copies - 1) < part.extent;
  });
}

CutParts even_cut(int64_t extent, int ranks, int64_t size) {
  return {{extent * size, (extent + ranks - 1) / ranks * size}};
}

Placement reshaped(const Placement& placement, const Shape& from, const Shape& to) {
  if (placement.kind != Placement::sharded) return placement;
  const int d = placement.dimension;
  const int64_t outer = from.elements(0, d), inner = from.elements(d + 1, from.rank());
  for (int e = 0; e < to.rank(); ++e) {
    if (to.elements(0, e) != outer) continue;
    // An element of the dimension is inner / other elements of the other one.
    const int64_t other = to.elements(e + 1, to.rank());
    Placement out = placement.moved_to(e);
    bool fits = true;
    for (CutPart& part : out.parts) {
      for (int64_t* count : {&part.extent, &part.length}) {
        fits = fits && *count * inner % other == 0;
        *count = *count * inner / other;
      }
    }
    if (fits && whole_extent(out.parts) == to[e]) return out;
  }
  return kReplicated;
}

void localize_position(Attributes& attributes, const LocalNode& node) {
  const Shape &whole = node.whole.shape, &local = node.local.shape;
  const int d = node.output.dimension;
  const int64_t inner = whole.elements(d + 1, whole.rank());
  if (d == 0) {  // one range, in which samples are as long as in the whole tensor
    const int64_t count = local.elements();
    ShardPosition::set(attributes, count, count,
                       cut_ranges(node.output.parts, node.rank).front().offset * inner);
    return;
  }
  ShardPosition::set(attributes, local[d] * inner, whole[d] * inner,
                     cut_ranges(node.output.parts, node.rank).front().offset * inner);
}

std::optional<std::vector<Placement>> place_elementwise(SpecSpan inputs, const Attributes&,
                                                        std::span<const Placement> placements) {
  int rank = 0;
  for (const TensorSpec& spec : inputs) rank = std::max(rank, spec.shape.rank());
  // The placement of the output: broadcasting aligns the innermost dimensions.
  Placement out = kReplicated;
  for (size_t i = 0; i < placements.size(); ++i) {
    if (placements[i].kind == Placement::partial) return {};  // not linear in general
    if (placements[i].kind != Placement::sharded) continue;
    const Placement here =
        placements[i].moved_to(placements[i].dimension + rank - inputs[i].shape.rank());
    if (out != kReplicated && here != out) return {};
    out = here;
  }
  if (out == kReplicated) return {{out}};
  // An operand that has the dimension must be sharded, one that is broadcast along it must not.
  for (size_t i = 0; i < placements.size(); ++i) {
    const int own = out.dimension - (rank - inputs[i].shape.rank());
    const bool repeated = own < 0 || inputs[i].shape[own] == 1;
    if (repeated == (placements[i].kind == Placement::sharded)) return {};
  }
  return {{out}};
}

}  // namespace dltrain
