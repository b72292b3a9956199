// galore_projection: gradients of both orientations; step_view.
#include "ops/case.h"

namespace dltrain {
namespace {

void add_projection(std::vector<OpCase>& cases, const std::string& what, Shape gradient,
                    int64_t rank, int64_t updates, bool finite = true, bool randomized = false) {
  OpCase c{.name = "galore_projection " + what,
           .op = "galore_projection",
           .inputs = {case_state(), case_tensor(gradient),
                      case_tensor({rank, std::min(gradient[0], gradient[1])})},
           .attributes = {{"gap", int64_t{5}}, {"randomized", randomized}}};
  c.state.out.updates = updates;
  c.state.out.finite = finite ? 1 : 0;
  cases.push_back(std::move(c));
}

}  // namespace

void add_galore_cases(std::vector<OpCase>& cases) {
  add_projection(cases, "of a wide gradient", {12, 40}, 3, 1);
  add_projection(cases, "of a tall gradient", {40, 12}, 3, 6);
  add_projection(cases, "of a square gradient", {9, 9}, 2, 11);
  add_projection(cases, "in several tiles", {70, 45}, 5, 1);
  add_projection(cases, "by subspace iteration", {12, 40}, 3, 1, true, true);
  add_projection(cases, "by subspace iteration of a tall gradient", {70, 45}, 5, 1, true, true);
  add_projection(cases, "between its updates", {12, 40}, 3, 7);
  add_projection(cases, "in a step that is not finite", {12, 40}, 3, 1, false);
  for (const char* view : {"unit_rate", "plain_gradient"}) {
    OpCase c{.name = std::string("step_view ") + view,
             .op = "step_view",
             .inputs = {case_state()},
             .attributes = {{view, true}}};
    c.state.in.max_grad_value = 0.5;
    cases.push_back(std::move(c));
  }
}

}  // namespace dltrain
