#include "graph/role.h"

namespace dltrain {
namespace {
// role, name, persistent, accumulates, reduced, checkpointed, guarded
constexpr RoleRules kTable[] = {
    {Role::activation, "activations", false, false, false, false, false},
    {Role::input, "inputs", false, false, false, false, false},
    {Role::output, "outputs", false, false, false, false, false},
    {Role::step_state, "step state", true, false, false, false, false},
    {Role::gradient, "gradients", true, true, true, false, false},
    {Role::statistic, "statistics", true, true, true, false, false},
    {Role::metric, "metrics", true, true, true, false, false},
    {Role::parameter, "parameters", true, false, false, true, true},
    {Role::low_precision, "low-precision copies", true, false, false, false, false},
    {Role::buffer, "buffers", true, false, false, true, true},
    {Role::moment, "optimizer moments", true, false, false, true, true},
    {Role::ema, "averaged parameters", true, false, false, true, true},
    {Role::carried, "carried state", true, false, false, true, true},
    {Role::scale, "scales", true, false, false, true, false},
    {Role::constant, "constants", true, false, false, false, false},
    {Role::cache, "caches", true, false, false, false, false},
    {Role::pass, "evaluation state", true, false, false, false, false},
    {Role::partial, "partial sums", true, false, false, false, false},
};
}  // namespace

std::span<const RoleRules> role_table() {
  return kTable;
}

const RoleRules& rules_of(Role role) {
  return kTable[static_cast<size_t>(role)];
}

}  // namespace dltrain
