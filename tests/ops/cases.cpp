#include "ops/case.h"

namespace dltrain {

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> table = [] {
    std::vector<OpCase> cases;
    add_elementwise_cases(cases);
    add_fused_cases(cases);
    add_reduce_cases(cases);
    add_matmul_cases(cases);
    add_conv2d_cases(cases);
    add_max_pool2d_cases(cases);
    add_normalisation_cases(cases);
    add_loss_cases(cases);
    add_update_cases(cases);
    return cases;
  }();
  return table;
}

}  // namespace dltrain
