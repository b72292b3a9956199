// The table of ops: the element-wise ones and those of all files of this folder.
#include <algorithm>
#include <vector>

#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {

// These files have tables of their own.
std::span<const OpDef> elementwise_ops();
std::span<const OpDef> placement_ops();

namespace {

std::vector<OpDef> make_table() {
  std::vector<OpDef> table(elementwise_ops().begin(), elementwise_ops().end());
  for (const OpDef* op : kOps) table.push_back(*op);
  return table;
}

std::vector<const OpDef*>& plugin_ops() {
  static std::vector<const OpDef*> ops;
  return ops;
}

}  // namespace

std::span<const OpDef> all_ops() {
  static const std::vector<OpDef> table = make_table();
  return table;
}

void add_ops(std::span<const OpDef> ops) {
  for (const OpDef& op : ops) plugin_ops().push_back(&op);
}

std::span<const OpDef* const> added_ops() {
  return plugin_ops();
}

const OpDef* find_op(std::string_view name) {
  for (const std::span<const OpDef> ops : {all_ops(), placement_ops()}) {
    const auto found = std::ranges::find(ops, name, &OpDef::name);
    if (found != ops.end()) return &*found;
  }
  const auto found = std::ranges::find(plugin_ops(), name, &OpDef::name);
  return found != plugin_ops().end() ? *found : nullptr;
}

SpecList OpDef::output_specs(SpecSpan inputs, const Attributes& attributes) const {
  SpecList out;
  if (signature.exists()) out = signature.match(name, inputs, attributes).specs;
  if (check != nullptr) check(inputs, attributes);
  return infer != nullptr ? infer(inputs, attributes) : out;
}

std::vector<int> OpDef::output_aliases(SpecSpan inputs, const Attributes& attributes,
                                       size_t count) const {
  if (aliases != nullptr) return aliases(inputs, attributes);
  if (signature.has_outputs()) return signature.match(name, inputs, attributes).aliases;
  return std::vector<int>(count, -1);
}

Cost op_cost(const OpDef& op, SpecSpan inputs, SpecSpan outputs, const Attributes& attributes) {
  if (op.cost != nullptr) return op.cost(inputs, outputs, attributes);
  return {0, bytes_moved(inputs, outputs)};
}

}  // namespace dltrain
