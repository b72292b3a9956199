// transpose(x): the axes in another order, as numpy.transpose: axis i of y is axis permutation[i]
// of x. Attribute: permutation (integers). Any dtype.
#include <algorithm>

#include <fmt/ranges.h>

#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"
#include "ops/token_axis.h"

namespace dltrain {
namespace {

SpecList infer_transpose(SpecSpan inputs, const Attributes& attributes) {
  const Shape& x = inputs[0].shape;
  const auto permutation = attributes.integers("permutation");
  std::vector<bool> used(static_cast<size_t>(x.rank()), false);
  std::vector<int64_t> extents;
  for (int64_t axis : permutation) {
    const bool fits = axis >= 0 && axis < x.rank() && !used[static_cast<size_t>(axis)];
    if (fits) {
      used[static_cast<size_t>(axis)] = true;
      extents.push_back(x[static_cast<int>(axis)]);
    }
  }
  if (extents.size() != permutation.size() || extents.size() != used.size()) {
    fail(ExitCode::usage, "transpose: {} is no order of the axes of {}", permutation, to_string(x));
  }
  return {{Shape(extents), inputs[0].dtype}};
}

std::vector<ValueId> gradient_transpose(const GradientRequest& r) {
  const auto permutation = r.attributes.integers("permutation");
  std::vector<int64_t> inverse(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i) {
    inverse[static_cast<size_t>(permutation[i])] = static_cast<int64_t>(i);
  }
  return {r.emitter.emit1("transpose", {r.output_gradients[0]}, {{"permutation", inverse}})};
}

std::optional<std::vector<Placement>> place_transpose(SpecSpan, const Attributes& attributes,
                                                      std::span<const Placement> p) {
  if (p[0].kind == Placement::partial) return {{kPartial}};
  const auto permutation = attributes.integers("permutation");
  for (size_t i = 0; i < permutation.size(); ++i) {
    if (permutation[i] == p[0].dimension) return {{p[0].moved_to(static_cast<int>(i))}};
  }
  return {};
}

int tokens_of_transpose(const TokenAxes& node) {
  const auto permutation = node.attributes.integers("permutation");
  const auto at = std::find(permutation.begin(), permutation.end(), node.axes[0]);
  return static_cast<int>(at - permutation.begin());
}

}  // namespace

constinit const OpDef kTransposeOp{.name = "transpose",
                                   .doc = "permutes the axes",
                                   .signature = "x[*]:any",
                                   .infer = infer_transpose,
                                   .gradient = gradient_transpose,
                                   .place = place_transpose,
                                   .autocast = CastPolicy::follow,
                                   .token_axis = tokens_of_transpose};

}  // namespace dltrain
