// FP8 training (passes/fp8.h): the values of ml_dtypes, the trajectories of an independent script
// in f64 (scripts/record_golden_fp8.py), and every layout.
#include "shared/fp8.h"

#include <cstring>
#include <fstream>

#include <nlohmann/json.hpp>

#include "refusal.h"
#include "run/layout_run.h"
#include "tensor/safetensors.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

const std::string kGolden = std::string(DLTRAIN_SOURCE_DIR) + "/tests/golden/";

std::string fp8(const std::string& recipe, const std::string& more = "") {
  return "precision={compute: bf16, fp8: {recipe: " + recipe + more + "}}";
}

// A GPT whose linear layers have sizes that FP8 needs.
Network gpt() {
  return {"gpt",
          {"model={type: gpt2, num_layers: 2, hidden_size: 32, num_heads: 2, max_positions: 8, "
           "vocab_size: 29, dropout: 0.1}",
           "data.train={type: synthetic_tokens, vocab_size: 29, length: 8, samples: 96}"}};
}

std::vector<float> floats(const SafetensorsFile& file, const std::string& name) {
  const std::span<const std::byte> bytes = file.data(file.at(name));
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

size_t rounded_operands(const std::vector<std::string>& overrides) {
  Experiment experiment = layout_experiment(gpt(), overrides);
  Session session = open_session(experiment, {.engines = {.cpu = &cpu_engine()}});
  size_t count = 0;
  for (const Node& node : session.executor->training().graph.nodes) {
    count += node.op->name == "fp8_round" ? 1 : 0;
  }
  return count;
}

}  // namespace

TEST_CASE("numbers of FP8 have a code each, whose order is theirs") {
  for (const auto& [name, format] : {std::pair("e4m3", kE4M3), {"e5m2", kE5M2}}) {
    const int finite = format.dropped == kE4M3.dropped ? 0x7F : 0x7C;
    for (int code = 0; code < finite; ++code) {
      INFO(name << " " << code);
      const float value = fp8_value(static_cast<uint8_t>(code), format);
      CHECK(to_fp8(value, 1, 1, format) == value);
      CHECK(fp8_code(value, format) == code);
      CHECK(fp8_code(-value, format) == code + 128);
      CHECK(fp8_value(static_cast<uint8_t>(code + 128), format) == -value);
      if (code > 0) CHECK(value > fp8_value(static_cast<uint8_t>(code - 1), format));
    }
    CHECK(fp8_value(static_cast<uint8_t>(finite - 1), format) == format.largest);
    CHECK(fp8_code(NAN, format) == 0x7F);
    CHECK(std::isnan(fp8_value(0x7F, format)));
  }
}

TEST_CASE("scales of blocks of codes are where cuBLASLt reads them") {
  // A column of scales for each 128 codes; a row for each 128 rows, of a multiple of four scales.
  const Fp8Scales vectors = fp8_scales({48, 272}, {1, 128});
  CHECK(vectors.at(47, 127) == 47);
  CHECK(vectors.at(3, 128) == 48 + 3);
  CHECK(vectors.at(3, 271) == 2 * 48 + 3);
  const Fp8Scales squares = fp8_scales({2, 150, 272}, {128, 128});
  CHECK(squares.at(127, 255) == 1);
  CHECK(squares.at(299, 256) == 2 * 4 + 2);
  // Tiles of 128 rows and four scales, one after the other along the rows; in each 32 rows of the
  // scales of the rows r, r + 32, r + 64 and r + 96.
  const Fp8Scales micro = fp8_scales({200, 160}, {1, 32});
  CHECK(micro.at(0, 31) == 0);
  CHECK(micro.at(0, 32) == 1);
  CHECK(micro.at(32, 0) == 4);
  CHECK(micro.at(1, 0) == 16);
  CHECK(micro.at(127, 127) == 511);
  CHECK(micro.at(0, 128) == 512);
  CHECK(micro.at(128 + 33, 159) == 1024 + 512 + 16 + 4);
}

TEST_CASE("plans for GPUs with FP8 products have codes, of the same state") {
  const auto plan = [](const std::string& recipe, const std::string& gpu) {
    Experiment experiment = layout_experiment(gpt(), {fp8(recipe)});
    SessionOptions options{.engines = {.cpu = &cpu_engine()}};
    if (!gpu.empty()) options.gpu = find_gpus(gpu)[0];
    if (options.gpu && recipe == "mxfp8" && gpu == "h100") options.gpu->fp8_block = 32;
    Session session = open_session(experiment, options);
    std::map<std::string, int> ops;
    for (const Node& node : session.executor->training().graph.nodes)
      ++ops[std::string(node.op->name)];
    std::set<std::string> state;
    for (const StateTensor& tensor : session.executor->layout().tensors()) {
      if (tensor.role == Role::moment) state.insert(tensor.name);
    }
    return std::pair(ops, state);
  };
  for (const char* recipe : {"current", "delayed", "blockwise", "mxfp8"}) {
    INFO(recipe);
    auto [cpu, state] = plan(recipe, "");
    auto [old_gpu, old_state] = plan(recipe, "a100");
    auto [gpu, gpu_state] = plan(recipe, "h100");
    CHECK(gpu_state == state);
    CHECK(old_gpu["fp8_matmul"] + cpu["fp8_matmul"] == 0);
    // Four layers in each of two blocks; an operand has codes for the forward and the backward.
    CHECK(gpu["fp8_matmul"] == 8 * 3);
    CHECK(gpu["fp8_round"] == 0);
    CHECK(gpu["fp8_codes"] == 8 * 6);
    CHECK(gpu["fp8_counts"] == cpu["fp8_counts"]);
  }
}

TEST_CASE("numbers of bf16 become those of ml_dtypes in FP8") {
  const SafetensorsFile values(kGolden + "fp8/values.safetensors", ExitCode::storage);
  for (const auto& [name, format] : {std::pair("e4m3", kE4M3), {"e5m2", kE5M2}}) {
    const std::vector<float> from = floats(values, std::string(name) + ".from"),
                             to = floats(values, std::string(name) + ".to");
    REQUIRE(from.size() == to.size());
    CHECK(from.size() > 3000);
    size_t wrong = 0;
    for (size_t i = 0; i < from.size(); ++i) {
      wrong += to_fp8(from[i], 1, 1, format) == to[i] ? 0 : 1;
      wrong += to_fp8(-from[i], 1, 1, format) == -to[i] ? 0 : 1;
    }
    CHECK(wrong == 0);
    CHECK(to_fp8(1e30f, 1, 1, format) == format.largest);
    CHECK(std::isnan(to_fp8(INFINITY, 1, 1, format)));
    CHECK(std::isnan(to_fp8(NAN, 1, 1, format)));
  }
}

TEST_CASE("the recipes of FP8 have the trajectories of an independent script in f64") {
  const auto golden = nlohmann::json::parse(std::ifstream(kGolden + "fp8/losses.json"));
  for (const char* recipe : {"none", "current", "delayed", "blockwise", "mxfp8"}) {
    INFO(recipe);
    const bool none = std::string(recipe) == "none";
    Experiment experiment = layout_experiment(
        {"", {}},
        {"model={type: gpt2, num_layers: 2, hidden_size: 32, num_heads: 4, max_positions: 32, "
         "vocab_size: 61, init_from: " +
             kGolden + "language/gpt2.safetensors}",
         "data.train={type: tensors, inputs: input, targets: target, shuffle: false, path: " +
             kGolden + "language/batches.safetensors}",
         "optimizer={type: adamw, learning_rate: 0.002, weight_decay: 0.1}",
         "training={global_batch_size: 4, max_steps: 20, max_grad_norm: 0.5}",
         "lr_scheduler=constant",
         none ? "precision={compute: bf16}"
              : fp8(recipe, std::string(recipe) == "delayed" ? ", history: 3" : "")});
    Session session = open_session(
        experiment, {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()},
                     .compute = DType::f64,
                     .fp8_in_f64 = true});
    start_session(session);
    std::vector<double> losses, norms;
    TrainEvents events;
    events.on_step = [&](const StepRecord& record) {
      losses.push_back(record.loss);
      norms.push_back(record.grad_norm);
    };
    train(session, events, {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
    const auto& expected = golden.at("cases").at(recipe);
    // Sums in another order; a value at the border of two FP8 numbers would be 1e-4 off.
    CHECK(greatest_difference(losses, expected.at("loss").get<std::vector<double>>()) < 1e-9);
    CHECK(greatest_difference(norms, expected.at("grad_norm").get<std::vector<double>>()) < 1e-7);
  }
}

TEST_CASE("FP8 has the same losses in every layout") {
  for (const char* recipe : {"current", "delayed", "blockwise", "mxfp8"}) {
    const LayoutRun one = layout_run(gpt(), 1, {fp8(recipe)});
    const LayoutRun plain = layout_run(gpt(), 1, {"precision.compute=bf16"});
    CHECK(one.losses != plain.losses);
    CHECK(greatest_difference(one.losses, plain.losses) < 1e-2);
    for (const std::vector<std::string>& layout : std::vector<std::vector<std::string>>{
             {"parallelism.data=2"},
             {"parallelism.zero_stage=3"},
             {"parallelism.context=2"},
             {"parallelism.pipeline=2", "training.micro_batch_size=6"},
             {"parallelism.tensor=2"},
             {"parallelism={tensor: 2, sequence_parallel: true}"}}) {
      INFO(recipe << ", " << layout[0]);
      std::vector<std::string> overrides = layout;
      overrides.push_back(fp8(recipe));
      const LayoutRun two = layout_run(gpt(), 2, overrides);
      INFO("losses within " << greatest_difference(two.losses, one.losses));
      CHECK(greatest_difference(two.losses, one.losses) < 2e-3);
      for (const auto& [name, bytes] : one.state) {
        if (name.starts_with("fp8_")) CHECK(two.state.contains(name));
      }
    }
  }
}

TEST_CASE("what FP8 loses is a metric, the same on all layouts") {
  double saturated = 0, underflow = 0;
  for (const char* recipe : {"current", "delayed", "mxfp8"}) {
    INFO(recipe);
    const LayoutRun one = layout_run(gpt(), 1, {fp8(recipe)});
    const LayoutRun two = layout_run(
        gpt(), 2, {fp8(recipe), "parallelism.pipeline=2", "training.micro_batch_size=6"});
    // Two shares after the accuracy, in each of five steps.
    REQUIRE(one.accuracies.size() == 3 * 5);
    REQUIRE(two.accuracies.size() == 3 * 5);
    for (size_t i = 0; i < one.accuracies.size(); i += 3) {
      const double largest = one.accuracies[i + 1], zero = one.accuracies[i + 2];
      INFO("step " << i / 3 << ": " << largest << ", " << zero);
      // Only scales of earlier steps can be too small.
      if (std::string(recipe) != "delayed") CHECK(largest == 0);
      CHECK(largest < 0.01);
      // The first scale of `delayed` is 1.
      CHECK(zero < (std::string(recipe) == "delayed" && i == 0 ? 0.2 : 0.01));
      CHECK(std::abs(two.accuracies[i + 1] - largest) < 1e-3);
      CHECK(std::abs(two.accuracies[i + 2] - zero) < 1e-3);
      saturated += largest;
      underflow += zero;
    }
  }
  CHECK(saturated > 0);
  CHECK(underflow > 0);
}

TEST_CASE("delayed scales do not depend on micro-batches or ranks") {
  // In the first step all weights are equal, and with them the largest elements but for gradients.
  const std::vector<std::string> base{
      fp8("delayed"), "training={global_batch_size: 24, max_steps: 1, max_grad_norm: 0.5}"};
  const LayoutRun one = layout_run(gpt(), 1, base);
  size_t compared = 0;
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{"training.micro_batch_size=4"}, {"parallelism.data=2"}}) {
    std::vector<std::string> overrides = base;
    overrides.insert(overrides.end(), layout.begin(), layout.end());
    const LayoutRun other =
        layout_run(gpt(), layout[0].starts_with("parallelism") ? 2 : 1, overrides);
    for (const auto& [name, bytes] : one.state) {
      if (!name.starts_with("fp8_scale of")) continue;
      INFO(layout[0] << ", " << name);
      CHECK(other.state.at(name) == bytes);
      ++compared;
    }
  }
  CHECK(compared == 2 * 3 * 8);
}

TEST_CASE(
    "operands are rounded once for each direction, but not in the last layer and excepted ones") {
  // Each of the eight layers rounds its input, its weight and its gradient.
  CHECK(rounded_operands({"precision.compute=bf16"}) == 0);
  CHECK(rounded_operands({fp8("current")}) >= 3 * 8);
  CHECK(rounded_operands({fp8("current", ", except: ['h.0.*']")}) <
        rounded_operands({fp8("current")}));
  const auto refused = [](const std::vector<std::string>& overrides) {
    return refusal_of([&] { rounded_operands(overrides); }, ExitCode::usage);
  };
  CHECK_THAT(refused({fp8("current", ", except: [nothing]")}),
             Contains("'nothing' matches no linear layer"));
  CHECK_THAT(refused({fp8("current", ", except: ['*']")}),
             Contains("no linear layer computes in FP8"));
  CHECK_THAT(refused({"precision.fp8.recipe=current"}), Contains("fp8 needs compute: bf16"));
}
