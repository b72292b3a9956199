// Placement rules: what a rule says of the outputs of two ranks must give the whole when put
// together.
#include "graph/placement.h"

#include <algorithm>

#include "base/error.h"
#include "catch.h"
#include "ops/compare.h"
#include "ops/rules.h"
#include "reference/engine.h"

using namespace dltrain;

namespace {

constexpr double kPlacementTolerance = 1e-12;  // f64; partial sums are added in another order

constexpr int kRanks = 2;

// Returns the part of a tensor that a rank holds; a partial tensor is 3/4 and 1/4 of the whole.
HostTensor held(const HostTensor& whole, const Placement& p, int rank) {
  if (p.kind == Placement::sharded) {
    const Cut cut{
        .axis = {}, .dimension = p.dimension, .ranks = kRanks, .rank = rank, .parts = p.parts};
    HostTensor out({cut.local(whole.spec.shape), whole.spec.dtype});
    copy_from_cut(whole.spec, cut, rank, whole.data, out.data);
    return out;
  }
  HostTensor out = whole;
  if (p.kind == Placement::partial) {
    for (int64_t i = 0; i < out.elements(); ++i) out.set(i, out.get(i) * (rank ? 0.25 : 0.75));
  }
  return out;
}

std::vector<Placement> choices(const CaseInput& input) {
  std::vector<Placement> out{kReplicated};
  if (input.fill == Fill::state || input.fill == Fill::absent) return out;
  for (int axis = 0; axis < input.spec.shape.rank(); ++axis) {
    const int64_t extent = input.spec.shape[axis];
    if (extent > 1) out.push_back({Placement::sharded, axis, even_cut(extent, kRanks)});
  }
  if (is_floating(input.spec.dtype)) out.push_back(kPartial);
  return out;
}

// Every choice of placements, but all replicated, and that which the op asks for.
std::vector<std::vector<Placement>> combinations(const OpCase& c, const Attributes& attributes,
                                                 SpecSpan specs) {
  const OpDef& op = *find_op(c.op);
  if (op.wanted != nullptr) {
    try {
      return {op.wanted(specs, attributes, kRanks)};
    } catch (const Error&) {
      return {};  // one head
    }
  }
  std::vector<std::vector<Placement>> out{{}};
  for (const CaseInput& input : c.inputs) {
    std::vector<std::vector<Placement>> longer;
    for (const auto& head : out) {
      for (const Placement& p : choices(input)) {
        longer.push_back(head);
        longer.back().push_back(p);
      }
    }
    out = std::move(longer);
  }
  out.erase(out.begin());
  return out;
}

std::string describe(const std::vector<Placement>& placements) {
  std::string out;
  for (const Placement& p : placements) {
    out += p.kind == Placement::sharded   ? " sharded " + std::to_string(p.dimension)
           : p.kind == Placement::partial ? " partial"
                                          : " replicated";
  }
  return out;
}

// The whole output from those of the two ranks.
HostTensor combined(const HostTensor& first, const HostTensor& second, const Placement& p) {
  HostTensor out = first;
  if (p.kind == Placement::sharded) {
    Cut cut{.axis = {}, .dimension = p.dimension, .ranks = kRanks, .rank = 0, .parts = p.parts};
    TensorSpec whole = first.spec;
    whole.shape[p.dimension] = whole_extent(p.parts);
    out = HostTensor(whole);
    copy_to_cut(whole, cut, 0, first.data, out.data);
    copy_to_cut(whole, cut, 1, second.data, out.data);
    return out;
  }
  if (p.kind == Placement::partial) {
    for (int64_t i = 0; i < out.elements(); ++i) out.set(i, out.get(i) + second.get(i));
  } else {
    CHECK(first.data == second.data);
  }
  return out;
}

}  // namespace

TEST_CASE("ops run in parts as their placement rules say give the whole") {
  OpRunner runner(reference_engine());
  std::vector<std::string_view> placed_ops;
  for (const OpCase& c : op_cases()) {
    const OpDef& op = *find_op(c.op);
    if (op.place == nullptr || c.attributes.has("shard_row") || c.attributes.has("first_row") ||
        rounds_factors(c)) {
      continue;
    }
    const Attributes attributes = case_attributes(c, DType::f64);
    const auto inputs = case_inputs(c, DType::f64);
    const auto whole = runner.run({.op = c.op, .attributes = attributes, .inputs = inputs}).outputs;
    for (const auto& placements : combinations(c, attributes, specs_of(inputs))) {
      const auto rule = op.place(specs_of(inputs), attributes, placements);
      if (!rule) continue;
      INFO(c.name << describe(placements));
      std::vector<HostTensor> parts[2];
      for (int rank = 0; rank < 2; ++rank) {
        OpRun run{.op = c.op, .attributes = attributes, .inputs = {}};
        if (op.localize != nullptr) {
          op.localize(run.attributes, {.inputs = specs_of(inputs),
                                       .whole = whole[0].spec,
                                       .local = held(whole[0], (*rule)[0], rank).spec,
                                       .placements = placements,
                                       .output = (*rule)[0],
                                       .rank = rank});
        }
        for (size_t i = 0; i < inputs.size(); ++i) {
          run.inputs.push_back(held(inputs[i], placements[i], rank));
        }
        parts[rank] = runner.run(run).outputs;
      }
      REQUIRE(rule->size() == whole.size());
      std::vector<HostTensor> together;
      for (size_t i = 0; i < whole.size(); ++i) {
        together.push_back(combined(parts[0][i], parts[1][i], (*rule)[i]));
        REQUIRE(together.back().spec == whole[i].spec);
      }
      const Difference d = difference(together, whole);
      INFO(d.where);
      CHECK(d.worst <= kPlacementTolerance);
      placed_ops.push_back(op.name);
    }
  }
  // A rule that never applies to any case is not tested.
  for (const OpDef& op : all_ops()) {
    if (op.place == nullptr) continue;
    INFO(op.name);
    CHECK(std::find(placed_ops.begin(), placed_ops.end(), op.name) != placed_ops.end());
  }
}
