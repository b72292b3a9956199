// batch_norm and its kin, dropout.
#include <fmt/format.h>

#include "base/philox.h"
#include "ops/case.h"
#include "ops/shard_position.h"

namespace dltrain {
namespace {

void add_batch_norm(std::vector<OpCase>& cases, const Shape& x, double epsilon) {
  const Shape channels{x[-1]};
  const Attributes attributes{{"epsilon", epsilon}};
  const std::string what = fmt::format("{} epsilon {}", to_string(x), epsilon);
  const CaseInput gamma = case_tensor(channels, Fill::positive), vector = case_tensor(channels),
                  variance = case_tensor(channels, Fill::positive);
  cases.push_back(
      {"batch_norm " + what, "batch_norm", {case_tensor(x), gamma, vector}, attributes});
  cases.push_back({"batch_norm_backward " + what,
                   "batch_norm_backward",
                   {case_tensor(x), case_tensor(x), gamma, vector, variance},
                   attributes});
  Attributes fused = attributes;
  fused.set("activation", std::string("relu"));
  cases.push_back(
      {"batch_norm and relu " + what, "batch_norm", {case_tensor(x), gamma, vector}, fused});
  cases.push_back({"batch_norm, residual and relu " + what,
                   "batch_norm",
                   {case_tensor(x), gamma, vector, case_tensor(x)},
                   fused});
  cases.push_back({"batch_norm_backward through relu " + what,
                   "batch_norm_backward",
                   {case_tensor(x), case_tensor(x), gamma, vector, variance, vector},
                   fused});
  cases.push_back({"batch_norm_inference " + what,
                   "batch_norm_inference",
                   {case_tensor(x), gamma, vector, vector, variance},
                   attributes});
}

void add_batch_norm_update(std::vector<OpCase>& cases, int64_t channels, bool finite) {
  const CaseInput mean = case_tensor({channels}),
                  variance = case_tensor({channels}, Fill::positive);
  OpCase c{.name = fmt::format("batch_norm_update {}{}", channels, finite ? "" : " not finite"),
           .op = "batch_norm_update",
           .inputs = {case_state(), mean, variance, mean, variance},
           .attributes = {{"momentum", 0.1}, {"groups", 4.0}, {"unbias", 32.0 / 31.0}}};
  c.state.out.finite = finite ? 1 : 0;
  cases.push_back(std::move(c));
}

void add_dropout(std::vector<OpCase>& cases, const Shape& x, double rate, int64_t first_sample,
                 const std::string& op = "dropout", const std::string& of = "") {
  OpCase c{
      .name =
          fmt::format("{} {} rate {} from sample {}{}", op, to_string(x), rate, first_sample, of),
      .op = op,
      .inputs = {case_tensor(x), case_state()},
      .attributes = {{"rate", rate}, {"stream", static_cast<int64_t>(random_stream("layers.3"))}}};
  c.state.in.sample_offset = first_sample;
  cases.push_back(std::move(c));
}

}  // namespace

void add_normalisation_cases(std::vector<OpCase>& cases) {
  add_batch_norm(cases, {2, 1}, 1e-5);
  add_batch_norm(cases, {33, 17}, 1e-5);
  add_batch_norm(cases, {17, 65}, 1e-3);
  add_batch_norm(cases, {2, 5, 7, 3}, 1e-5);
  add_batch_norm(cases, {3, 4, 4, 33}, 1e-5);
  add_batch_norm(cases, {16, 14, 14, 8}, 1e-5);
  add_batch_norm(cases, {5, 3, 3, 150}, 1e-5);
  add_batch_norm(cases, {5, 9, 9, 48}, 1e-5);
  add_batch_norm(cases, {3, 3, 3, 264}, 1e-5);
  for (int64_t channels : {1, 3, 17, 65}) add_batch_norm_update(cases, channels, true);
  add_batch_norm_update(cases, 17, false);

  add_dropout(cases, {1}, 0.5, 0);
  add_dropout(cases, {17}, 0.5, 2);
  add_dropout(cases, {3, 17}, 0.1, 0);
  add_dropout(cases, {3, 17}, 0.1, 5);  // 85: not a multiple of the generator's four
  add_dropout(cases, {2, 3, 5, 7}, 0.25, 1);
  add_dropout(cases, {33, 65}, 0.0, 7);
  add_dropout(cases, {300, 257}, 0.9, 1'000'003);

  // Columns of [3, 17] and of [300, 257].
  add_dropout(cases, {3, 9}, 0.1, 5, "dropout", ", a shard");
  ShardPosition::set(cases.back().attributes, 9, 17, 8);
  add_dropout(cases, {300, 128}, 0.5, 1'000'003, "dropout", ", a shard");
  ShardPosition::set(cases.back().attributes, 128, 257, 129);

  // Samples 2 and 3 of [4, 17].
  add_dropout(cases, {2, 17}, 0.1, 5, "dropout", ", some samples");
  ShardPosition::set(cases.back().attributes, 34, 34, 34);

  for (const bool balanced : {false, true}) {
    add_dropout(cases, {3, 12, 7}, 0.5, 11, "dropout",
                fmt::format(", {} runs of tokens", balanced ? 2 : 1));
    Attributes& attributes = cases.back().attributes;
    TokenPositions::set(attributes, TokenCut(2, 1, balanced), 24);
    attributes.set("token_size", int64_t{7});
    add_dropout(cases, {3, 12, 7}, 0.5, 11, "dropout",
                fmt::format(", {} runs of tokens and a shard", balanced ? 2 : 1));
    Attributes& shard = cases.back().attributes;
    TokenPositions::set(shard, TokenCut(2, 1, balanced), 24);
    shard.set("token_size", int64_t{20});
    ShardPosition::set(shard, 7, 20, 9);
  }
  add_dropout(cases, {1, 1}, 0.5, 0, "dropout2d");
  add_dropout(cases, {3, 17}, 0.1, 5, "dropout2d");
  add_dropout(cases, {2, 3, 5, 7}, 0.25, 1, "dropout2d");
  add_dropout(cases, {2, 3, 5, 7}, 0.0, 1, "dropout2d");
  add_dropout(cases, {20, 9, 9, 33}, 0.5, 1'000'003, "dropout2d");
}

}  // namespace dltrain
