#include "ops/case.h"

namespace dltrain {
namespace {

// The reasons for the two numbers stand in tolerances.md.
constexpr double kFewRoundings = 2e-6;
constexpr double kSums = 2e-5;

struct Family {
  void (*add)(std::vector<OpCase>& cases);
  double tolerance;
};

constexpr Family kFamilies[] = {
    {add_elementwise_cases, kFewRoundings},
    {add_fused_cases, kFewRoundings},
    {add_reduce_cases, kSums},
    {add_layout_cases, kFewRoundings},
    {add_matmul_cases, kSums},
    {add_conv2d_cases, kSums},
    {add_max_pool2d_cases, kFewRoundings},
    {add_normalisation_cases, kSums},
    {add_layer_norm_cases, kSums},
    {add_image_map_cases, kSums},
    {add_embedding_cases, kSums},
    {add_softmax_cases, kSums},
    {add_loss_cases, kSums},
    {add_attention_cases, kSums},
    {add_decoding_cases, kSums},
    {add_recurrent_cases, kSums},
    {add_position_cases, kSums},
    {add_losses_cases, kSums},
    {add_expert_cases, kSums},
    {add_update_cases, kFewRoundings},
};

}  // namespace

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> table = [] {
    std::vector<OpCase> cases;
    for (const Family& family : kFamilies) {
      const size_t first = cases.size();
      family.add(cases);
      for (size_t i = first; i < cases.size(); ++i) cases[i].tolerance = family.tolerance;
    }
    return cases;
  }();
  return table;
}

}  // namespace dltrain
