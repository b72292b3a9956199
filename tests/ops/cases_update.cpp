// gradient_norm and the optimizers: several tensors at once, groups, clipping, loss scale, steps
// that are not finite.
#include <optional>

#include <fmt/format.h>

#include "ops/case.h"

namespace dltrain {
namespace {

const std::vector<Shape> kTensors = {{33, 17}, {17}, {1}, {3, 3, 3, 5}, {70001}};

void add_norm(std::vector<OpCase>& cases, const std::string& what, double limit, double scale,
              Fill last) {
  OpCase c{"gradient_norm " + what, "gradient_norm", {case_state()}};
  for (const Shape& shape : kTensors) c.inputs.push_back(case_tensor(shape));
  c.inputs.back().fill = last;
  c.state.in.max_grad_norm = limit;
  c.state.out.loss_scale = scale;
  cases.push_back(std::move(c));
}

// One step of dynamic loss scaling; the scale may halve, stay or double.
void add_scaled_norm(std::vector<OpCase>& cases, const std::string& what, double scale,
                     int64_t streak, Fill last) {
  add_norm(cases, what, 0, scale, last);
  cases.back().state.in.scale_growth_interval = 3;
  cases.back().state.out.scale_streak = streak;
}

void add_role(OpCase& c, Fill fill) {
  for (const Shape& shape : kTensors) c.inputs.push_back(case_tensor(shape, fill));
}

// An optimizer's update of all tensors; `moments`: how each kind of moment is filled.
OpCase& add_update(std::vector<OpCase>& cases, const std::string& op, const std::string& what,
                   const std::vector<Fill>& moments, Attributes attributes, double decay = 0) {
  attributes.set("count", static_cast<int64_t>(kTensors.size()));
  attributes.set("lr_scale", std::vector<double>{1});
  attributes.set("weight_decay", std::vector<double>{decay});
  OpCase c{.name = op + " " + what,
           .op = op,
           .inputs = {case_state()},
           .attributes = std::move(attributes)};
  add_role(c, Fill::normal);
  add_role(c, Fill::normal);
  for (Fill fill : moments) add_role(c, fill);
  const bool steps = op == "lars_update" || op == "lamb_update";
  const auto gradients = c.inputs.begin() + 1 + static_cast<std::ptrdiff_t>(kTensors.size());
  if (op == "lamb_update") c.inputs.erase(gradients, gradients + kTensors.size());
  for (size_t i = 0; steps && i < kTensors.size(); ++i) {
    c.inputs.push_back({{Shape{2}, DType::f64}, Fill::positive});
  }
  cases.push_back(std::move(c));
  return cases.back();
}

// The ways in which every optimizer may be asked for.
void add_optimizer(std::vector<OpCase>& cases, const std::string& op,
                   const std::vector<Fill>& moments, const Attributes& attributes) {
  add_update(cases, op, "with decay", moments, attributes, 0.1);
  add_update(cases, op, "in its first update", moments, attributes).state.out.updates = 1;
  add_update(cases, op, "in update 100000", moments, attributes, 0.1).state.out.updates = 100000;
  add_update(cases, op, "of a step that is not finite", moments, attributes, 0.1).state.out.finite =
      0;
  add_update(cases, op, "of clipped values", moments, attributes, 0.1).state.in.max_grad_value =
      0.25;
  OpCase& c = add_update(cases, op, "of three groups", moments, attributes);
  c.attributes.set("group", std::vector<int64_t>{2, 0, 0, 1, 2});
  c.attributes.set("lr_scale", std::vector<double>{1, 0.25, 3});
  c.attributes.set("weight_decay", std::vector<double>{0.1, 0, 0.5});
}

// An update that rounds parameters to their copies too; the second parameter has none. Small
// tensors: where f32 and f64 lie on two sides of a tie, copies differ.
void add_copies(std::vector<OpCase>& cases, const std::string& op, DType dtype,
                const std::vector<Fill>& moments, bool finite = true) {
  const std::vector<Shape> tensors{{9, 7}, {5}, {130}};
  OpCase c{.name = fmt::format("{} with copies in {}{}", op, dtype_name(dtype),
                               finite ? "" : " of a step that is not finite"),
           .op = op,
           .inputs = {case_state()},
           .attributes = {{"count", static_cast<int64_t>(tensors.size())}, {"copies", true}}};
  if (op == "sgd_update" && !moments.empty()) c.attributes.set("momentum", 0.9);
  std::vector<Fill> roles{Fill::normal, Fill::normal};
  roles.insert(roles.end(), moments.begin(), moments.end());
  for (Fill fill : roles) {
    for (const Shape& shape : tensors) c.inputs.push_back(case_tensor(shape, fill));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    c.inputs.push_back(i == 1 ? case_absent() : CaseInput{{tensors[i], dtype}, Fill::normal});
  }
  c.state.out.finite = finite ? 1 : 0;
  cases.push_back(std::move(c));
}

// Parameters in bf16 that are rounded at random. Where f32 and f64 lie on two sides of what is cut
// off, they differ by a unit in the last place.
void add_rounding(std::vector<OpCase>& cases, const std::string& op,
                  const std::vector<Fill>& moments, bool finite = true) {
  const std::vector<Shape> tensors{{9, 7}, {5}, {8203}};
  OpCase c{.name = fmt::format("{} of parameters in bf16 with {} moments{}", op, moments.size(),
                               finite ? "" : " of a step that is not finite"),
           .op = op,
           .inputs = {case_state()},
           .attributes = {{"count", static_cast<int64_t>(tensors.size())},
                          {"rounding", std::vector<int64_t>{7, -8, int64_t{1} << 60}},
                          {"group", std::vector<int64_t>{1, 0, 1}},
                          {"lr_scale", std::vector<double>{1, 0.25}},
                          {"weight_decay", std::vector<double>{0.1, 0}}}};
  if (op == "sgd_update" && !moments.empty()) c.attributes.set("momentum", 0.9);
  for (const Shape& shape : tensors) c.inputs.push_back({{shape, DType::bf16}, Fill::normal});
  std::vector<Fill> roles{Fill::normal};
  roles.insert(roles.end(), moments.begin(), moments.end());
  for (Fill fill : roles) {
    for (const Shape& shape : tensors) c.inputs.push_back(case_tensor(shape, fill));
  }
  c.state.in.step = 5;
  c.state.out.finite = finite ? 1 : 0;
  cases.push_back(std::move(c));
}

// Moments in 8 bits: codes, then scales. Blocks that end in the middle, and few elements: where f32
// and f64 lie on two sides of the middle between two codes, these differ. `parameters`: their dtype
// if they are rounded at random, or that of copies.
void add_8bit(std::vector<OpCase>& cases, const std::string& op, size_t moments,
              const std::string& what, std::optional<DType> rounds = {},
              std::optional<DType> copies = {}) {
  const std::vector<Shape> tensors{{9, 7}, {5}, {3, 256}, {8192 + 259}};
  OpCase c{.name = fmt::format("{} with moments in 8 bits {}", op, what),
           .op = op,
           .inputs = {case_state()},
           .attributes = {{"count", static_cast<int64_t>(tensors.size())},
                          {"block", int64_t{256}},
                          {"group", std::vector<int64_t>{1, 0, 1, 0}},
                          {"lr_scale", std::vector<double>{1, 0.25}},
                          {"weight_decay", std::vector<double>{0.1, 0}}}};
  if (op == "sgd_update") c.attributes.set("momentum", 0.9);
  if (rounds) c.attributes.set("rounding", std::vector<int64_t>{7, -8, int64_t{1} << 60, 3});
  if (copies) c.attributes.set("copies", true);
  const auto add = [&](DType dtype, Fill fill, bool scales = false) {
    for (const Shape& shape : tensors) {
      c.inputs.push_back({{scales ? Shape{(shape.elements() + 255) / 256} : shape, dtype}, fill});
    }
  };
  add(rounds.value_or(DType::f32), Fill::normal);
  add(DType::f32, Fill::normal);
  for (size_t k = 0; k < moments; ++k) add(DType::u8, Fill::codes);
  for (size_t k = 0; k < moments; ++k) add(DType::f32, Fill::positive, true);
  if (copies) add(*copies, Fill::normal);
  cases.push_back(std::move(c));
}

// An op of Adafactor gets whole tensors, the elements from the third on of larger tensors, or those
// elements of shards that have two parts of the rows or of the columns.
enum class Given { whole, ranges, shards };

// Variances of rows and columns in place of moments that are alike to the parameters, and sums.
void add_adafactor_cases(std::vector<OpCase>& cases, const std::string& op, size_t roles,
                         Given given) {
  const bool ranges = given != Given::whole, shards = given == Given::shards;
  const size_t first = cases.size(), n = kTensors.size();
  const Attributes attributes{
      {"beta2_decay", -0.8}, {"epsilon1", 0x1p-23}, {"epsilon2", 1e-3}, {"d", 1.0}};
  const std::vector<Fill> moments(roles - 2, Fill::positive);
  if (ranges) {
    add_update(cases, op, shards ? "of shards" : "of ranges", moments, attributes, 0.1);
  } else {
    add_optimizer(cases, op, moments, attributes);
  }
  for (size_t i = first; i < cases.size(); ++i) {
    std::vector<int64_t> range;
    for (size_t t = 0; t < n; ++t) {
      const Shape& p = kTensors[t];
      const bool factored = p.rank() > 1;
      int64_t columns = factored ? p.elements(1, p.rank()) : p.elements();
      // The range ends within a row.
      int64_t rows = !factored ? 0 : ranges ? p[0] + 1 : p[0];
      std::vector<int64_t> runs{0, 0};
      if (shards && factored) {
        const int64_t dimension = static_cast<int64_t>(t % 2);
        int64_t& cut = dimension == 0 ? rows : columns;
        const int64_t half = cut / 2;
        runs = {dimension, 2, 1, half, half + 3, cut - half};
        cut += 4;
      }
      const auto shape = [&](size_t role) -> Shape& {
        return cases[i].inputs[1 + role * n + t].spec.shape;
      };
      if (ranges) {
        shape(0) = shape(1) = Shape{p.elements()};
        range.insert(range.end(), {factored ? 2 : 0, rows, columns});
        range.insert(range.end(), runs.begin(), runs.end());
      }
      if (roles > 2) shape(2) = factored ? Shape{rows} : Shape{p.elements()};
      if (roles > 3) shape(3) = Shape{columns};
      if (roles > 3 && !factored) cases[i].inputs[1 + 3 * n + t] = case_absent();
      for (size_t role = 4; role < roles; ++role) {
        shape(role) = Shape{role == 4 && factored ? 1 + rows + columns : 1};
        cases[i].inputs[1 + role * n + t].spec.dtype = DType::f64;
      }
    }
    if (ranges) cases[i].attributes.set("range", range);
  }
}

void add_clip_percentile(std::vector<OpCase>& cases, const std::string& what, int64_t updates,
                         int64_t window, double percentile, double norm, bool finite = true) {
  OpCase c{
      .name = "clip_percentile " + what,
      .op = "clip_percentile",
      .inputs = {case_state(), case_tensor({window}, Fill::positive)},
      .attributes = {{"percentile", percentile}, {"min_history", int64_t{3}}, {"factor", 1.5}}};
  c.state.out = {.grad_norm = norm,
                 .gradient_factor = 0.5,
                 .updates = updates,
                 .finite = finite ? int64_t{1} : int64_t{0}};
  cases.push_back(std::move(c));
}

void add_running_norm(std::vector<OpCase>& cases, const std::string& what, Attributes attributes,
                      double squares_limit, Fill fill = Fill::seed) {
  OpCase c{.name = "running_norm " + what,
           .op = "running_norm",
           .inputs = {case_state(), {{Shape{1}, DType::f64}, fill}},
           .attributes = std::move(attributes)};
  if (c.attributes.boolean("clips")) c.inputs.push_back({{Shape{1}, DType::f64}, Fill::positive});
  c.state.in.max_grad_norm = squares_limit;
  c.state.out = {
      .grad_norm = 2, .gradient_factor = 0.5, .updates = 7, .finite = 1, .loss_scale = 4};
  cases.push_back(std::move(c));
}

void add_ema(std::vector<OpCase>& cases, const std::string& what, int64_t updates, bool warmup,
             bool finite = true) {
  OpCase c{.name = "ema_update " + what,
           .op = "ema_update",
           .inputs = {case_state()},
           .attributes = {{"count", static_cast<int64_t>(kTensors.size())},
                          {"decay", 0.9},
                          {"start", int64_t{10}},
                          {"warmup", warmup}}};
  add_role(c, Fill::normal);
  add_role(c, Fill::normal);
  c.state.out.updates = updates;
  c.state.out.finite = finite ? 1 : 0;
  cases.push_back(std::move(c));
}

void add_copies(std::vector<OpCase>& cases, DType dtype, bool finite) {
  OpCase c{.name = fmt::format("low_precision_update to {}{}", dtype_name(dtype),
                               finite ? "" : " of a step that is not finite"),
           .op = "low_precision_update",
           .inputs = {case_state()},
           .attributes = {{"count", static_cast<int64_t>(kTensors.size())}}};
  add_role(c, Fill::normal);
  add_role(c, Fill::normal);
  for (size_t i = 0; i < kTensors.size(); ++i) {
    c.inputs[1 + kTensors.size() + i].spec.dtype = dtype;
  }
  c.state.out.finite = finite ? 1 : 0;
  cases.push_back(std::move(c));
}

// The micro-batch of two samples that is number `index` of this rank's step.
void add_tree_sum(std::vector<OpCase>& cases, const std::string& what, int64_t micro_steps,
                  int64_t index, int64_t levels) {
  OpCase c{"tree_sum " + what, "tree_sum", {case_state()}};
  for (int64_t row = 0; row <= levels; ++row) add_role(c, Fill::normal);
  c.attributes = {{"count", static_cast<int64_t>(kTensors.size())},
                  {"levels", levels},
                  {"micro_batch", int64_t{2}},
                  {"micro_steps", micro_steps}};
  c.state.in.sample_offset = 2 * index;
  cases.push_back(std::move(c));
}

}  // namespace

void add_update_cases(std::vector<OpCase>& cases) {
  add_norm(cases, "without clipping", 0, 1, Fill::normal);
  add_norm(cases, "clipped to 1", 1, 1, Fill::normal);
  add_norm(cases, "below the limit", 1e6, 1, Fill::normal);
  add_norm(cases, "clipped, with a loss scale", 0.5, 1024, Fill::normal);
  add_norm(cases, "with an infinity", 1, 1, Fill::not_finite);
  add_scaled_norm(cases, "whose scale stays", 1024, 1, Fill::normal);
  add_scaled_norm(cases, "whose scale doubles", 1024, 2, Fill::normal);
  add_scaled_norm(cases, "whose scale is at its limit", 16777216, 2, Fill::normal);
  add_scaled_norm(cases, "whose scale halves", 1024, 2, Fill::not_finite);
  add_scaled_norm(cases, "whose scale cannot fall", 1, 2, Fill::not_finite);

  add_clip_percentile(cases, "with too few norms", 3, 8, 50, 100);
  add_clip_percentile(cases, "of some norms", 4, 8, 50, 100);
  add_clip_percentile(cases, "of a full window", 21, 8, 90, 100);
  add_clip_percentile(cases, "of the greatest norm", 1000, 257, 100, 100);
  add_clip_percentile(cases, "of the smallest norm", 1000, 257, 0.1, 0.6);
  add_clip_percentile(cases, "above the norm", 1000, 257, 50, 0.01);
  add_clip_percentile(cases, "of a step that is not finite", 21, 8, 90, 100, false);
  add_clip_percentile(cases, "below max_grad_norm", 21, 8, 90, 100);
  cases.back().state.in.max_grad_norm = 50;

  add_running_norm(cases, "of the only group", {{"first", true}, {"last", true}}, 0);
  add_running_norm(cases, "of the first group, clipped", {{"first", true}, {"clips", true}}, 1e-3);
  add_running_norm(cases, "of a later group", {{"clips", true}}, 1e-3);
  add_running_norm(cases, "of the last group", {{"last", true}, {"clips", true}}, 1e-3);
  add_running_norm(cases, "of a group that is not finite",
                   {{"first", true}, {"last", true}, {"clips", true}}, 1e-3, Fill::not_finite);

  add_ema(cases, "before its start", 4, false);
  add_ema(cases, "in its first update", 11, false);
  add_ema(cases, "in its second update", 12, false);
  add_ema(cases, "warming up", 14, true);
  add_ema(cases, "after the warm-up", 1000, true);
  add_ema(cases, "of a step that is not finite", 1000, false, false);

  add_update(cases, "sgd_update", "plain", {}, {});
  add_update(cases, "sgd_update", "with momentum", {Fill::normal}, {{"momentum", 0.9}});
  add_update(cases, "sgd_update", "with dampening", {Fill::normal},
             {{"momentum", 0.9}, {"dampening", 0.3}});
  add_update(cases, "sgd_update", "without momentum with decay", {}, {}, 0.01);
  add_optimizer(cases, "sgd_update", {Fill::normal}, {{"momentum", 0.9}, {"nesterov", true}});

  cases.push_back({"sum_of_squares of several tensors", "sum_of_squares", {}});
  add_role(cases.back(), Fill::normal);
  OpCase norm_of{"gradient_norm_of clipped", "gradient_norm_of", {case_state()}};
  norm_of.inputs.push_back({{Shape{3}, DType::f64}, Fill::seed});
  norm_of.state.in.max_grad_norm = 0.1;
  cases.push_back(norm_of);
  add_tree_sum(cases, "of the first micro-batch", 4, 0, 2);
  add_tree_sum(cases, "of the second rank's second micro-batch", 4, 5, 2);
  add_tree_sum(cases, "of a whole tree", 8, 7, 3);
  add_tree_sum(cases, "of the last of seven", 7, 6, 3);
  add_tree_sum(cases, "of the last of five", 5, 4, 3);

  const Attributes betas{{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}};
  add_optimizer(cases, "adam_update", {Fill::normal, Fill::positive}, betas);
  add_optimizer(cases, "adamw_update", {Fill::normal, Fill::positive}, betas);
  add_optimizer(cases, "adagrad_update", {Fill::positive},
                {{"lr_decay", 0.01}, {"initial_accumulator_value", 0.1}, {"epsilon", 1e-10}});
  add_optimizer(cases, "lion_update", {Fill::normal}, {{"beta1", 0.9}, {"beta2", 0.99}});

  add_optimizer(cases, "lars_sums", {}, {});
  add_update(cases, "lars_update", "without momentum", {}, {{"trust_coefficient", 0.02}}, 0.1);
  add_optimizer(cases, "lars_update", {Fill::normal},
                {{"momentum", 0.9}, {"trust_coefficient", 0.02}, {"epsilon", 1e-8}});
  add_optimizer(cases, "lamb_moments", {Fill::normal, Fill::positive}, betas);
  add_optimizer(cases, "lamb_update", {Fill::normal, Fill::positive}, betas);
  Attributes always = betas;
  always.set("always_adapt", true);
  add_update(cases, "lamb_update", "always scaled", {Fill::normal, Fill::positive}, always);
  add_update(cases, "lars_update", "always scaled", {Fill::normal},
             {{"momentum", 0.9}, {"trust_coefficient", 0.02}, {"always_adapt", true}});
  for (Given given : {Given::whole, Given::ranges, Given::shards}) {
    add_adafactor_cases(cases, "adafactor_sums", 2, given);
    add_adafactor_cases(cases, "adafactor_moments", 5, given);
    add_adafactor_cases(cases, "adafactor_update", 6, given);
  }
  for (DType dtype : {DType::bf16, DType::f16}) {
    add_copies(cases, "adamw_update", dtype, {Fill::normal, Fill::positive});
    add_copies(cases, "sgd_update", dtype, {Fill::normal});
  }
  add_copies(cases, "lion_update", DType::bf16, {Fill::normal});
  add_copies(cases, "adamw_update", DType::bf16, {Fill::normal, Fill::positive}, false);
  add_rounding(cases, "sgd_update", {});
  add_rounding(cases, "sgd_update", {Fill::normal});
  add_rounding(cases, "adamw_update", {Fill::normal, Fill::positive});
  add_rounding(cases, "adamw_update", {Fill::normal, Fill::positive}, false);
  add_rounding(cases, "adagrad_update", {Fill::positive});
  add_rounding(cases, "lion_update", {Fill::normal});

  add_8bit(cases, "adam_update", 2, "and groups");
  add_8bit(cases, "adamw_update", 2, "and groups");
  add_8bit(cases, "lion_update", 1, "and groups");
  add_8bit(cases, "sgd_update", 1, "and groups");
  add_8bit(cases, "sgd_update", 1, "and Nesterov");
  cases.back().attributes.set("nesterov", true);
  add_8bit(cases, "adamw_update", 2, "in its first update");
  cases.back().state.out.updates = 1;
  add_8bit(cases, "adamw_update", 2, "of a step that is not finite");
  cases.back().state.out.finite = 0;
  add_8bit(cases, "adamw_update", 2, "of clipped values");
  cases.back().state.in.max_grad_value = 0.25;
  add_8bit(cases, "adamw_update", 2, "and no gradient yet");
  for (CaseInput& input : cases.back().inputs) {
    if (input.fill == Fill::positive) input.fill = Fill::kept;  // zeros
  }
  cases.back().state.out.gradient_factor = 0;
  add_8bit(cases, "adamw_update", 2, "and parameters in bf16", DType::bf16);
  add_8bit(cases, "adamw_update", 2, "and copies in bf16", {}, DType::bf16);
  add_8bit(cases, "lion_update", 1, "and copies in f16", {}, DType::f16);

  const Attributes alpha{{"alpha", 0.9}, {"epsilon", 1e-4}};
  Attributes centered = alpha, momentum = alpha;
  centered.set("centered", true);
  momentum.set("momentum", 0.9);
  add_update(cases, "rmsprop_update", "plain", {Fill::positive}, alpha);
  add_update(cases, "rmsprop_update", "with momentum", {Fill::positive, Fill::normal}, momentum);
  // A small mean: where the variance nearly vanishes, its root has no exact digits.
  add_update(cases, "rmsprop_update", "centered", {Fill::positive, Fill::seed}, centered);
  centered.set("momentum", 0.9);
  add_optimizer(cases, "rmsprop_update", {Fill::positive, Fill::seed, Fill::normal}, centered);

  for (DType dtype : {DType::bf16, DType::f16}) {
    add_copies(cases, dtype, true);
    add_copies(cases, dtype, false);
  }
  cases.push_back({.name = "random_direction",
                   .op = "random_direction",
                   .inputs = {case_state()},
                   .attributes = {{"shape", std::vector<int64_t>{67, 301}},
                                  {"dtype", "f32"},
                                  {"stream", int64_t{1234567}}}});
}

}  // namespace dltrain
