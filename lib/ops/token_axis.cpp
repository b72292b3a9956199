#include "ops/token_axis.h"

#include <algorithm>

namespace dltrain {

int tokens_of_first(const TokenAxes& node) {
  const bool others = std::any_of(node.axes.begin() + 1, node.axes.end(),
                                  [](int axis) { return axis != kNoTokenAxis; });
  return others ? kMixesTokens : node.axes[0];
}

int tokens_before_last(const TokenAxes& node) {
  const int at = tokens_of_first(node);
  return at == node.inputs[0].shape.rank() - 1 ? kMixesTokens : at;
}

int tokens_at_one(const TokenAxes& node, size_t count) {
  const auto at_one = [](int axis) { return axis == 1; };
  return std::ranges::all_of(std::span(node.axes).first(count), at_one) ? 1 : kMixesTokens;
}
int tokens_at_one(const TokenAxes& node) {
  return tokens_at_one(node, 1);
}

// Operands without tokens must have extent 1 there.
int tokens_of_elements(const TokenAxes& node) {
  const int rank = node.outputs[0].shape.rank();
  int at = kNoTokenAxis;
  for (size_t i = 0; i < node.axes.size(); ++i) {
    if (node.axes[i] == kNoTokenAxis) continue;
    const int here = node.axes[i] + rank - node.inputs[i].shape.rank();
    if (at != kNoTokenAxis && here != at) return kMixesTokens;
    at = here;
  }
  for (size_t i = 0; i < node.axes.size(); ++i) {
    const Shape& shape = node.inputs[i].shape;
    const int own = at - (rank - shape.rank());
    if (node.axes[i] == kNoTokenAxis && own >= 0 && shape[own] != 1) return kMixesTokens;
  }
  return at;
}

int tokens_within_borders(const TokenAxes& node) {
  const auto at = static_cast<size_t>(node.axes[0]);
  const bool along =
      node.attributes.integers("before")[at] != 0 || node.attributes.integers("after")[at] != 0;
  return along ? kMixesTokens : node.axes[0];
}

int no_tokens(const TokenAxes&) {
  return kNoTokenAxis;
}

void localize_token_shape(Attributes& attributes, const TokenNode& node) {
  std::vector<int64_t> shape = attributes.integers("shape");
  auto& tokens = shape[static_cast<size_t>(node.axis)];
  tokens = node.cut.local(tokens);
  attributes.set("shape", shape);
}

void localize_token_positions(Attributes& attributes, const TokenNode& node) {
  TokenPositions::set(attributes, node.cut, node.whole.shape[node.axis]);
}

void localize_token_elements(Attributes& attributes, const TokenNode& node) {
  const Shape& shape = node.whole.shape;
  localize_token_positions(attributes, node);
  attributes.set("token_size", shape.elements(node.axis + 1, shape.rank()));
}

}  // namespace dltrain
