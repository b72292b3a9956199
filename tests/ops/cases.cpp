#include <algorithm>

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
    {add_dequantize_cases, kFewRoundings},
    {add_fp8_cases, kFewRoundings},
    {add_fp8_matmul_cases, kSums},
    {add_loss_cases, kSums},
    {add_attention_cases, kSums},
    {add_decoding_cases, kSums},
    {add_recurrent_cases, kSums},
    {add_position_cases, kSums},
    {add_losses_cases, kSums},
    {add_expert_cases, kSums},
    {add_update_cases, kFewRoundings},
    {add_galore_cases, kSums},
};

// Every fourth case of an op with products, with TF32 operands.
void add_tf32_cases(std::vector<OpCase>& cases, size_t first) {
  const auto has = [](const OpCase& c, std::string_view part) {
    return c.op.find(part) != std::string::npos;
  };
  size_t seen = 0;
  for (size_t i = first, end = cases.size(); i < end; ++i) {
    const bool fused = has(cases[i], "recurrent") || cases[i].op.starts_with("attention");
    if (!fused && !has(cases[i], "matmul") && !has(cases[i], "conv2d")) continue;
    if (cases[i].op == "fp8_matmul") continue;  // its factors have fewer bits
    if (seen++ % 4 != 0) continue;
    OpCase c = cases[i];
    c.name += " tf32";
    c.attributes.set("math", std::string("tf32"));
    // A value between two steps that lies in the middle of two TF32 numbers may become either.
    if (fused) c.roundings = std::max(c.roundings, 2.0);
    cases.push_back(std::move(c));
  }
}

}  // namespace

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> table = [] {
    std::vector<OpCase> cases;
    for (const Family& family : kFamilies) {
      const size_t first = cases.size();
      family.add(cases);
      add_tf32_cases(cases, first);
      for (size_t i = first; i < cases.size(); ++i) cases[i].tolerance = family.tolerance;
    }
    return cases;
  }();
  return table;
}

}  // namespace dltrain
