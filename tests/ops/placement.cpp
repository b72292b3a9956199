// Placement rules: what a rule says of the outputs of two ranks must give the whole when put
// together.
#include <algorithm>

#include "catch.h"
#include "ops/compare.h"
#include "ops/rules.h"
#include "ops/shard_position.h"
#include "reference/engine.h"

using namespace dltrain;

namespace {

constexpr double kPlacementTolerance = 1e-12;  // f64; partial sums are added in another order

// Elements [first, last) along `axis`.
HostTensor slice(const HostTensor& whole, int axis, int64_t first, int64_t last) {
  Shape shape = whole.spec.shape;
  const int64_t extent = shape[axis], inner = shape.elements(axis + 1, shape.rank());
  shape[axis] = last - first;
  HostTensor out({shape, whole.spec.dtype});
  const int64_t outer = shape.elements(0, axis), part = (last - first) * inner;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < part; ++i) {
      out.set(o * part + i, whole.get((o * extent + first) * inner + i));
    }
  }
  return out;
}

HostTensor joined(const HostTensor& a, const HostTensor& b, int axis) {
  Shape shape = a.spec.shape;
  shape[axis] += b.spec.shape[axis];
  HostTensor out({shape, a.spec.dtype});
  const int64_t inner = shape.elements(axis + 1, shape.rank());
  for (int64_t i = 0; i < out.elements(); ++i) {
    const int64_t at = i / inner % shape[axis], outer = i / inner / shape[axis];
    const bool in_a = at < a.spec.shape[axis];
    const HostTensor& from = in_a ? a : b;
    const int64_t row = outer * from.spec.shape[axis] + (in_a ? at : at - a.spec.shape[axis]);
    out.set(i, from.get(row * inner + i % inner));
  }
  return out;
}

// What rank 0 or 1 holds of a tensor. The first shard is the longer one; a partial tensor
// is 3/4 and 1/4 of the whole.
HostTensor held(const HostTensor& whole, const Placement& p, int rank) {
  if (p.kind == Placement::sharded) {
    const int64_t extent = whole.spec.shape[p.dimension], middle = (extent + 1) / 2;
    return rank == 0 ? slice(whole, p.dimension, 0, middle)
                     : slice(whole, p.dimension, middle, extent);
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
    if (input.spec.shape[axis] > 1) out.push_back({Placement::sharded, axis});
  }
  if (is_floating(input.spec.dtype)) out.push_back(kPartial);
  return out;
}

// Every choice of placements, but all replicated.
std::vector<std::vector<Placement>> combinations(const OpCase& c) {
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
  if (p.kind == Placement::sharded) return joined(first, second, p.dimension);
  HostTensor out = first;
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
    if (op.place == nullptr || c.attributes.has("shard_row")) continue;
    const Attributes attributes = case_attributes(c, DType::f64);
    const auto inputs = case_inputs(c, DType::f64);
    const auto whole = runner.run({.op = c.op, .attributes = attributes, .inputs = inputs}).outputs;
    for (const auto& placements : combinations(c)) {
      const auto rule = op.place(specs_of(inputs), attributes, placements);
      if (!rule) continue;
      INFO(c.name << describe(placements));
      std::vector<HostTensor> parts[2];
      for (int rank = 0; rank < 2; ++rank) {
        OpRun run{.op = c.op, .attributes = attributes, .inputs = {}};
        if (op.uses_positions) {
          const int d = (*rule)[0].dimension;
          const Shape& y = whole[0].spec.shape;
          const int64_t inner = y.elements(d + 1, y.rank()), middle = (y[d] + 1) / 2;
          ShardPosition::set(run.attributes, (rank == 0 ? middle : y[d] - middle) * inner,
                             y[d] * inner, rank == 0 ? 0 : middle * inner);
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
