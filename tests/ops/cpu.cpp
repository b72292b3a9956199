// The CPU engine against the reference engine, case by case.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "catch.h"
#include "cpu/engine.h"
#include "ops/compare.h"
#include "reference/engine.h"

using namespace dltrain;

TEST_CASE("the CPU engine agrees with the reference on every op case") {
  const auto reports = compare_engine(cpu_engine(), reference_engine());
  REQUIRE(reports.size() >= op_cases().size());
  CHECK(std::ranges::count(reports, "accumulate", &CaseReport::how) > 400);
  for (const CaseReport& report : reports) {
    INFO(report.op_case->name << ", " << report.how << ", " << report.variant << ": off by "
                              << report.worst);
    CHECK(report.fault == "");
  }
}

TEST_CASE("the CPU engine in bf16 and f16 agrees with the reference but for rounding") {
  for (DType dtype : {DType::bf16, DType::f16}) {
    const auto reports = compare_engine(cpu_engine(), reference_engine(), has_low_precision, dtype);
    CHECK(reports.size() > 400);
    for (const CaseReport& report : reports) {
      INFO(dtype_name(dtype) << " " << report.op_case->name << ", " << report.how << ", "
                             << report.variant << ": off by " << report.worst);
      CHECK(report.fault == "");
    }
  }
}

TEST_CASE("cross-entropy and its gradient at once have the bits of the two ops") {
  const auto [engine, dtype] =
      GENERATE(std::pair{&reference_engine, DType::f32}, std::pair{&reference_engine, DType::f64},
               std::pair{&cpu_engine, DType::f32}, std::pair{&cpu_engine, DType::bf16});
  OpRunner runner(engine());
  for (const OpCase& c : op_cases()) {
    if (c.op != "softmax_cross_entropy_gradient") continue;
    INFO(c.name << " in " << dtype_name(dtype));
    OpRun run{.op = c.op, .attributes = case_attributes(c, dtype), .inputs = case_inputs(c, dtype)};
    const std::vector<HostTensor> both = runner.run(run).outputs;
    const HostTensor seed = run.inputs[2];
    run.op = "softmax_cross_entropy";
    run.inputs.pop_back();
    const std::vector<HostTensor> loss = runner.run(run).outputs;
    run.op = "softmax_cross_entropy_backward";
    run.inputs.insert(run.inputs.end(), {loss[1], seed});
    CHECK(both[0].data == runner.run(run).outputs[0].data);
    CHECK(both[1].data == loss[0].data);
    CHECK(both[2].data == loss[2].data);
  }
}

TEST_CASE("products and convolutions with an activation keep NaN") {
  struct Op {
    const char* name;
    Shape x, w;
  };
  OpRunner runner(cpu_engine());
  for (const Op& op :
       {Op{"matmul", {32, 32}, {32, 32}}, Op{"conv2d", {2, 8, 8, 16}, {16, 3, 3, 16}}}) {
    for (const char* activation : {"relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"}) {
      for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        INFO(op.name << " with " << activation << " in " << dtype_name(dtype));
        HostTensor x({op.x, DType::f32}), w({op.w, DType::f32});
        for (HostTensor* tensor : {&x, &w}) {
          for (int64_t i = 0; i < tensor->elements(); ++i) tensor->set(i, 0.125);
        }
        x.set(0, std::numeric_limits<double>::quiet_NaN());
        const HostTensor y = runner
                                 .run({.op = op.name,
                                       .attributes = {{"activation", std::string(activation)}},
                                       .inputs = {converted(x, dtype), converted(w, dtype)}})
                                 .outputs[0];
        CHECK(std::isnan(y.get(0)));
        CHECK(y.get(y.elements() - 1) > 0.25);
      }
    }
  }
}

TEST_CASE("the gradient of weighted cross-entropy is finite with an infinite logit elsewhere") {
  const Attributes attributes{{"class_weights", std::vector<double>{1, 2, 3}}};
  HostTensor logits({Shape{1, 3}, DType::f32}), labels({Shape{1}, DType::i32}),
      dloss({Shape{1}, DType::f64});
  logits.set(0, -std::numeric_limits<double>::infinity());
  labels.set(0, 1);
  dloss.set(0, 1);
  for (const Engine* engine : {&cpu_engine(), &reference_engine()}) {
    INFO(engine->name);
    OpRunner runner(*engine);
    OpRun run{.op = "weighted_cross_entropy", .attributes = attributes, .inputs = {logits, labels}};
    const std::vector<HostTensor> loss = runner.run(run).outputs;
    CHECK(std::abs(loss[0].get(0) - 2 * std::log(2)) < 1e-6);
    run.op += "_backward";
    run.inputs.insert(run.inputs.end(), {loss[1], dloss});
    const HostTensor gradient = runner.run(run).outputs[0];
    CHECK(gradient.get(0) == 0);
    CHECK(std::abs(gradient.get(1) + 1) < 1e-6);
    CHECK(std::abs(gradient.get(2) - 1) < 1e-6);
  }
}

TEST_CASE("a class without weight may have an infinite logit") {
  const Attributes attributes{{"class_weights", std::vector<double>{0, 2, 3}},
                              {"label_smoothing", 0.1}};
  HostTensor logits({Shape{1, 3}, DType::f32}), labels({Shape{1}, DType::i32}),
      shares({Shape{1, 3}, DType::f32}), dloss({Shape{1}, DType::f64});
  logits.set(0, -std::numeric_limits<double>::infinity());
  labels.set(0, 1);
  shares.set(1, 1);
  dloss.set(0, 1);
  for (const Engine* engine : {&cpu_engine(), &reference_engine()}) {
    for (const HostTensor& targets : {labels, shares}) {
      INFO(engine->name << ", " << to_string(targets.spec));
      OpRunner runner(*engine);
      OpRun run{
          .op = "weighted_cross_entropy", .attributes = attributes, .inputs = {logits, targets}};
      const std::vector<HostTensor> loss = runner.run(run).outputs;
      CHECK(std::isfinite(loss[0].get(0)));
      run.op += "_backward";
      run.inputs.insert(run.inputs.end(), {loss[1], dloss});
      const HostTensor gradient = runner.run(run).outputs[0];
      for (int64_t i = 0; i < 3; ++i) CHECK(std::isfinite(gradient.get(i)));
    }
  }
}

TEST_CASE("of max_grad_norm and a percentile the smaller limit clips") {
  const auto [limit, factor] = GENERATE(std::pair{0.0, 0.05}, std::pair{1.0, 0.01},
                                        std::pair{8.0, 0.05}, std::pair{200.0, 0.05});
  for (const Engine* engine : {&cpu_engine(), &reference_engine()}) {
    INFO(engine->name << ", max_grad_norm " << limit);
    HostTensor state({Shape{sizeof(StepState)}, DType::u8}), norms({Shape{4}, DType::f32});
    for (int64_t i = 0; i < 4; ++i) norms.set(i, 5);
    StepState s = kCaseState;
    s.in.max_grad_norm = limit;
    s.out = {.grad_norm = 100,
             .gradient_factor = limit > 0 ? std::min(1.0, limit / 100) : 1.0,  // of gradient_norm
             .updates = 9,
             .finite = 1};
    std::memcpy(state.data.data(), &s, sizeof s);
    const HostTensor after = OpRunner(*engine)
                                 .run({.op = "clip_percentile",
                                       .attributes = {{"min_history", int64_t{3}}},
                                       .inputs = {state, norms}})
                                 .outputs[0];
    std::memcpy(&s, after.data.data(), sizeof s);
    CHECK(std::abs(s.out.gradient_factor - factor) < 1e-6);
  }
}
