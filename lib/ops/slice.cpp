// slice(x): a box of x. Attributes before, after (one integer an axis): how many elements are left
//           out at the beginning and at the end of each axis. Any dtype.
// pad(x):   the inverse: `before` and `after` elements of `value` (number, 0) around x.
//
// Each is the gradient of the other.
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"
#include "ops/token_axis.h"

namespace dltrain {
namespace {

struct Borders {
  Borders(std::string_view op, const Shape& x, const Attributes& attributes)
      : before(attributes.integers("before")), after(attributes.integers("after")) {
    const auto rank = static_cast<size_t>(x.rank());
    check_internal(before.size() == rank && after.size() == rank,
                   "{}: borders of {} and {} axes, the input is {}", op, before.size(),
                   after.size(), to_string(x));
    constexpr int64_t kMax = int64_t{1} << 40;  // beyond, a sum could overflow
    for (size_t i = 0; i < rank; ++i) {
      if (before[i] < 0 || after[i] < 0 || before[i] > kMax || after[i] > kMax) {
        fail(ExitCode::usage, "{}: borders [{}, {}] of axis {} of {}", op, before[i], after[i], i,
             to_string(x));
      }
    }
  }
  std::vector<int64_t> before, after;
};

SpecList infer_slice(SpecSpan inputs, const Attributes& attributes) {
  Shape y = inputs[0].shape;
  const Borders borders("slice", y, attributes);
  for (int i = 0; i < y.rank(); ++i) {
    const auto at = static_cast<size_t>(i);
    y[i] -= borders.before[at] + borders.after[at];
    if (y[i] < 1) {
      fail(ExitCode::usage, "slice: nothing is left of axis {} of {} after {} and {}", i,
           to_string(inputs[0].shape), borders.before[at], borders.after[at]);
    }
  }
  return {{y, inputs[0].dtype}};
}

SpecList infer_pad(SpecSpan inputs, const Attributes& attributes) {
  Shape y = inputs[0].shape;
  const Borders borders("pad", y, attributes);
  for (int i = 0; i < y.rank(); ++i) {
    y[i] += borders.before[static_cast<size_t>(i)] + borders.after[static_cast<size_t>(i)];
  }
  return {{y, inputs[0].dtype}};
}

std::vector<ValueId> gradient_slice(const GradientRequest& r) {
  return {r.emitter.emit1("pad", {r.output_gradients[0]}, r.attributes)};
}
std::vector<ValueId> gradient_pad(const GradientRequest& r) {
  Attributes borders = r.attributes;
  borders.erase("value");
  return {r.emitter.emit1("slice", {r.output_gradients[0]}, borders)};
}

// Dimensions whose borders are 0 may be sharded.
std::optional<std::vector<Placement>> place_borders(SpecSpan, const Attributes& attributes,
                                                    std::span<const Placement> p) {
  if (p[0].kind == Placement::partial) {
    return attributes.number("value") == 0 ? std::optional(std::vector{kPartial}) : std::nullopt;
  }
  const auto axis = static_cast<size_t>(p[0].dimension);
  const bool whole =
      attributes.integers("before")[axis] == 0 && attributes.integers("after")[axis] == 0;
  return whole ? std::optional(std::vector{p[0]}) : std::nullopt;
}

// A slice of a sharded dimension may have whole parts of it.
std::optional<std::vector<Placement>> place_slice(SpecSpan inputs, const Attributes& attributes,
                                                  std::span<const Placement> p) {
  if (auto placed = place_borders(inputs, attributes, p)) return placed;
  const auto axis = static_cast<size_t>(p[0].dimension);
  const int64_t begin = attributes.integers("before")[axis];
  const int64_t end = inputs[0].shape[p[0].dimension] - attributes.integers("after")[axis];
  Placement out = p[0].moved_to(p[0].dimension);
  out.parts.clear();
  int64_t at = 0;
  for (const CutPart& part : p[0].parts) {
    if (at >= begin && at + part.extent <= end) out.parts.push_back(part);
    at += part.extent;
  }
  return whole_extent(out.parts) == end - begin ? std::optional(std::vector{out}) : std::nullopt;
}

void localize_slice(Attributes& attributes, const LocalNode& node) {
  const Placement& x = node.placements[0];
  if (x.kind != Placement::sharded) return;
  const auto axis = static_cast<size_t>(x.dimension);
  const int64_t begin = attributes.integers("before")[axis];
  int64_t at = 0, before = 0;  // of the rank: elements before the slice
  for (const CutPart& part : x.parts) {
    if (at < begin) before += cut_extent({part}, node.rank);
    at += part.extent;
  }
  const int64_t after = cut_extent(x.parts, node.rank) - before - node.local.shape[x.dimension];
  for (const auto& [name, border] : {std::pair("before", before), {"after", after}}) {
    auto borders = attributes.integers(name);
    borders[axis] = border;
    attributes.set(name, borders);
  }
}

Cost cost_slice(SpecSpan, SpecSpan outputs, const Attributes&) {
  return {0, 2.0 * static_cast<double>(outputs[0].bytes())};
}

}  // namespace

constinit const OpDef kSliceOp{.name = "slice",
                               .doc = "a box of x",
                               .signature = "x[*]:any",
                               .infer = infer_slice,
                               .gradient = gradient_slice,
                               .place = place_slice,
                               .localize = localize_slice,
                               .cost = cost_slice,
                               .autocast = CastPolicy::follow,
                               .token_axis = tokens_within_borders};
constinit const OpDef kPadOp{.name = "pad",
                             .doc = "x padded with a constant",
                             .signature = "x[*]:any",
                             .infer = infer_pad,
                             .gradient = gradient_pad,
                             .place = place_borders,
                             .autocast = CastPolicy::follow,
                             .token_axis = tokens_within_borders};

}  // namespace dltrain
