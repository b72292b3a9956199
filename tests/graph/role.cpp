// The table of roles is a contract with checkpoints, the planner and the data-parallel pass: a
// change here changes what is saved, summed over ranks or skipped by a bad step.
#include "graph/role.h"

#include <string>

#include "catch.h"

namespace dltrain {
namespace {

TEST_CASE("the rules of every role are as documented") {
  std::string table;
  for (const RoleRules& r : role_table()) {
    table += r.name;
    table += r.persistent ? ": persistent" : ":";
    table += r.accumulates ? " accumulates" : "";
    table += r.checkpointed ? " checkpointed\n" : "\n";
  }
  CHECK(table ==
        "activations:\n"
        "inputs:\n"
        "outputs:\n"
        "step state: persistent\n"
        "gradients: persistent accumulates\n"
        "statistics: persistent accumulates\n"
        "metrics: persistent accumulates\n"
        "parameters: persistent checkpointed\n"
        "low-precision copies: persistent\n"
        "buffers: persistent checkpointed\n"
        "optimizer moments: persistent checkpointed\n"
        "averaged parameters: persistent checkpointed\n"
        "carried state: persistent checkpointed\n"
        "constants: persistent\n"
        "caches: persistent\n"
        "evaluation state: persistent\n"
        "partial sums: persistent\n");
}

TEST_CASE("the table of roles stands in the order of the enumeration") {
  size_t i = 0;
  for (const RoleRules& r : role_table()) {
    CHECK(static_cast<size_t>(r.role) == i++);
    CHECK(&rules_of(r.role) == &r);
  }
  CHECK(i == static_cast<size_t>(Role::partial) + 1);
}

}  // namespace
}  // namespace dltrain
