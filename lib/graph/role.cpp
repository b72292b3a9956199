#include "graph/role.h"

namespace dltrain {
namespace {
// role, name, persistent, accumulates, checkpointed
constexpr RoleRules kTable[] = {
    {Role::activation, "activations", false, false, false},
    {Role::input, "inputs", false, false, false},
    {Role::output, "outputs", false, false, false},
    {Role::step_state, "step state", true, false, false},
    {Role::gradient, "gradients", true, true, false},
    {Role::statistic, "statistics", true, true, false},
    {Role::metric, "metrics", true, true, false},
    {Role::parameter, "parameters", true, false, true},
    {Role::low_precision, "low-precision copies", true, false, false},
    {Role::buffer, "buffers", true, false, true},
    {Role::moment, "optimizer moments", true, false, true},
    {Role::ema, "averaged parameters", true, false, true},
    {Role::carried, "carried state", true, false, true},
    {Role::constant, "constants", true, false, false},
    {Role::cache, "caches", true, false, false},
    {Role::pass, "evaluation state", true, false, false},
    {Role::partial, "partial sums", true, false, false},
};
}  // namespace

std::span<const RoleRules> role_table() {
  return kTable;
}

const RoleRules& rules_of(Role role) {
  return kTable[static_cast<size_t>(role)];
}

}  // namespace dltrain
