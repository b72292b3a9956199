// Shape rules refuse what does not fit, naming what was found and what was expected.
#include <limits>

#include <fmt/format.h>

#include "base/error.h"
#include "catch.h"
#include "ops/case.h"
#include "ops/conv2d.h"
#include "ops/fused.h"
#include "ops/rules.h"

using namespace dltrain;

namespace {

using ShapesIntegers = std::vector<int64_t>;

struct BadCall {
  std::string_view op;
  SpecList inputs;
  Attributes attributes;
  std::vector<std::string> named;  // parts of the message
};

TensorSpec f32(const Shape& shape) {
  return {shape, DType::f32};
}
const TensorSpec kState{Shape{sizeof(StepState)}, DType::u8};

const Attributes kPool{{"kernel", ShapesIntegers{2, 2}},
                       {"input_shape", ShapesIntegers{1, 4, 4, 3}}};
const Attributes kTwo{{"count", int64_t{2}}, {"momentum", 0.9}};
const Attributes kOne{{"count", int64_t{1}}};

const std::vector<BadCall>& bad_calls() {
  static const std::vector<BadCall> table{
      {"add", {f32({2, 3}), f32({4})}, {}, {"[2, 3]", "[4]"}},
      {"sub", {f32({2, 3}), f32({2})}, {}, {"[2, 3]", "[2]"}},
      {"mul", {f32({5}), {Shape{5}, DType::f64}}, {}, {"f32[5]", "f64[5]"}},
      {"div", {f32({5}), {Shape{5}, DType::i32}}, {}, {"i32[5]"}},
      {"relu_backward", {f32({2, 3}), f32({3, 2})}, {}, {"[2, 3]", "[3, 2]"}},
      {"gelu", {{Shape{5}, DType::u8}}, {}, {"u8[5]"}},
      {"fused_elementwise",
       {f32({2}), f32({3})},
       {{"program", std::string("add(0, 1)")}},
       {"[2]", "[3]"}},
      {"reduce",
       {f32({2, 3})},
       {{"kind", std::string("sum")}, {"axes", ShapesIntegers{2}}},
       {"axis 2", "[2, 3]"}},
      {"reduce",
       {f32({2, 3})},
       {{"kind", std::string("sum")}, {"axes", ShapesIntegers{1, 1}}},
       {"axis 1", "[2, 3]"}},
      {"broadcast", {f32({2, 3})}, {{"shape", ShapesIntegers{2, 1}}}, {"[2, 3]", "[2, 1]"}},
      {"reshape", {f32({2, 3})}, {{"shape", ShapesIntegers{7}}}, {"[2, 3]", "[7]"}},
      {"concat", {f32({2, 3}), f32({2, 4})}, {{"axis", int64_t{0}}}, {"[2, 3]", "[2, 4]"}},
      {"concat", {f32({2, 3})}, {{"axis", int64_t{2}}}, {"axis 2", "[2, 3]"}},
      {"slice",
       {f32({2, 3})},
       {{"before", ShapesIntegers{1, 0}}, {"after", ShapesIntegers{1, 0}}},
       {"[2, 3]"}},
      {"pad",
       {f32({2, 3})},
       {{"before", ShapesIntegers{-1, 0}}, {"after", ShapesIntegers{1, 0}}},
       {"[2, 3]"}},
      {"transpose", {f32({2, 3})}, {{"permutation", ShapesIntegers{0, 0}}}, {"[0, 0]", "[2, 3]"}},
      {"transpose", {f32({2, 3})}, {{"permutation", ShapesIntegers{0, 2}}}, {"[0, 2]", "[2, 3]"}},
      {"matmul", {f32({2, 3}), f32({4, 5})}, {}, {"[2, 3]", "[4, 5]"}},
      {"matmul", {f32({2, 3}), f32({3, 5})}, {{"transpose_b", true}}, {"[2, 3]", "[3, 5]ᵀ"}},
      {"matmul", {f32({2, 3}), f32({3, 5}), f32({4})}, {}, {"[4]", "[5]"}},
      {"matmul", {f32({2, 3}), f32({2, 3, 5})}, {}, {"[2, 3, 5]"}},
      {"conv2d", {f32({1, 8, 8, 3}), f32({4, 3, 3, 2})}, {}, {"[1, 8, 8, 3]", "[4, 3, 3, 2]"}},
      {"conv2d", {f32({1, 8, 8, 3}), f32({4, 9, 3, 3})}, {}, {"a window of 9", "an extent of 8"}},
      {"conv2d", {f32({8, 8, 3}), f32({4, 3, 3, 3})}, {}, {"[8, 8, 3]"}},
      {"conv2d", {f32({1, 8, 8, 3}), f32({4, 3, 3, 3}), f32({3})}, {}, {"[3]", "[4]"}},
      {"batch_norm_inference",
       {f32({2, 3}), f32({3}), f32({3}), f32({3}), f32({3}), f32({2, 3})},
       {},
       {"expects 5 inputs, got 6"}},
      {"conv2d_backward_input",
       {f32({1, 8, 8, 4}), f32({4, 3, 3, 3})},
       {{"input_shape", ShapesIntegers{1, 8, 8, 3}}},
       {"[1, 8, 8, 4]", "[1, 6, 6, 4]"}},
      {"conv2d_backward_weight",
       {f32({1, 8, 8, 4}), f32({1, 8, 8, 3})},
       {{"weight_shape", ShapesIntegers{4, 3, 3, 3}}},
       {"[1, 8, 8, 4]", "[1, 6, 6, 4]"}},
      {"max_pool2d", {f32({1, 1, 4, 3})}, kPool, {"a window of 2", "an extent of 1"}},
      {"max_pool2d", {f32({4, 4, 3})}, kPool, {"[4, 4, 3]"}},
      {"max_pool2d", {f32({1, 20, 20, 1})}, {{"kernel", ShapesIntegers{16, 16}}}, {"16×16", "255"}},
      {"max_pool2d",
       {f32({1, 8, 8, 1})},
       {{"kernel", ShapesIntegers{3, 3}}, {"padding", ShapesIntegers{2, 2}}},
       {"[2, 2]", "[3, 3]"}},
      {"max_pool2d_backward",
       {f32({1, 4, 4, 3}), {Shape{1, 2, 2, 3}, DType::u8}},
       kPool,
       {"[1, 4, 4, 3]", "[1, 2, 2, 3]"}},
      {"max_pool2d_tangent",
       {f32({1, 4, 4, 3}), {Shape{1, 4, 4, 3}, DType::u8}},
       kPool,
       {"[1, 4, 4, 3]", "[1, 2, 2, 3]"}},
      {"batch_norm", {f32({2, 3}), f32({4}), f32({3})}, {}, {"[4]", "[3]"}},
      {"batch_norm_backward",
       {f32({2, 3}), f32({2, 4}), f32({3}), f32({3}), f32({3})},
       {},
       {"[2, 4]", "[2, 3]"}},
      {"batch_norm_inference",
       {f32({2, 3}), f32({3}), f32({3}), f32({3}), f32({4})},
       {},
       {"[4]", "[3]"}},
      {"batch_norm_update", {kState, f32({3}), f32({3}), f32({4}), f32({3})}, {}, {"[4]", "[3]"}},
      {"dropout", {f32({2, 3}), f32({2, 3})}, {}, {"step state", "[2, 3]"}},
      {"layer_norm", {f32({2, 3}), f32({4}), f32({3})}, {}, {"[4]", "[3]"}},
      {"layer_norm_backward",
       {f32({2, 3}), f32({2, 3}), f32({3}), f32({3}), f32({2})},
       {},
       {"[3]", "[2]"}},
      {"rms_norm", {f32({3}), f32({3})}, {}, {"[3]"}},
      {"rms_norm_backward", {f32({2, 3}), f32({3, 2}), f32({3}), f32({2})}, {}, {"[3, 2]"}},
      {"group_norm", {f32({2, 6}), f32({6}), f32({6})}, {{"groups", int64_t{4}}}, {"4 groups"}},
      {"group_norm_backward",
       {f32({2, 6}), f32({2, 6}), f32({6}), f32({2, 3}), f32({2, 2})},
       {{"groups", int64_t{3}}},
       {"[2, 2]", "[2, 3]"}},
      {"avg_pool2d", {f32({1, 1, 4, 3})}, kPool, {"a window of 2", "an extent of 1"}},
      {"avg_pool2d", {f32({1, 4, 4, 3})}, {{"output_size", ShapesIntegers{0, 1}}}, {"0 × 1"}},
      {"avg_pool2d_backward", {f32({1, 4, 4, 3})}, kPool, {"[1, 4, 4, 3]", "[1, 2, 2, 3]"}},
      {"adaptive_max_pool2d",
       {f32({4, 4, 3})},
       {{"output_size", ShapesIntegers{1, 1}}},
       {"[4, 4, 3]"}},
      {"adaptive_max_pool2d_backward",
       {f32({1, 2, 2, 3}), {Shape{1, 2, 2, 3}, DType::u8}},
       {{"output_size", ShapesIntegers{2, 2}}, {"input_shape", ShapesIntegers{1, 4, 4, 3}}},
       {"u8", "i32"}},
      {"upsample2d",
       {f32({4, 4, 3})},
       {{"output_size", ShapesIntegers{8, 8}}, {"mode", "nearest"}},
       {"[4, 4, 3]"}},
      {"upsample2d_backward",
       {f32({1, 4, 4, 3})},
       {{"output_size", ShapesIntegers{8, 8}},
        {"mode", "nearest"},
        {"input_shape", ShapesIntegers{1, 4, 4, 3}}},
       {"[1, 4, 4, 3]", "[1, 8, 8, 3]"}},
      {"embedding", {f32({2, 3}), f32({5, 4})}, {}, {"f32[2, 3]", "i32"}},
      {"embedding_backward",
       {{Shape{2, 3}, DType::i32}, f32({3, 2, 4})},
       {{"rows", int64_t{5}}},
       {"[3, 2, 4]", "[2, 3, D]"}},
      {"dropout2d", {f32({2, 3}), f32({2, 3})}, {}, {"step state", "[2, 3]"}},
      {"softmax", {{Shape{5}, DType::i32}}, {}, {"i32[5]"}},
      {"log_softmax_backward", {f32({2, 3}), f32({3, 2})}, {}, {"[2, 3]", "[3, 2]"}},
      {"softmax_cross_entropy", {f32({2, 3}), {Shape{3}, DType::i32}}, {}, {"[3]", "[2]"}},
      {"softmax_cross_entropy", {f32({2, 3}), f32({2})}, {}, {"f32[2]", "i32"}},
      {"softmax_cross_entropy_gradient",
       {f32({2, 3}), {Shape{2}, DType::i32}, f32({1})},
       {},
       {"f32[1]", "f64"}},
      {"softmax_cross_entropy_backward",
       {f32({2, 3}), {Shape{2}, DType::i32}, f32({6}), {Shape{1}, DType::f64}},
       {},
       {"[6]", "[2]"}},
      {"top_k_routing", {f32({2, 3})}, {{"k", int64_t{4}}}, {"4 of 3 experts"}},
      {"combine_experts",
       {f32({5, 3}), {Shape{2, 2}, DType::i32}, {Shape{4}, DType::i32}},
       {},
       {"sources", "[4]", "[5]"}},
      {"grouped_matmul",
       {f32({4, 3}), f32({2, 5, 4}), {Shape{3}, DType::i32}},
       {},
       {"[4, 3]", "[2, 5, 4]"}},
      {"grouped_matmul",
       {f32({4, 3}), f32({2, 3, 5}), {Shape{2}, DType::i32}},
       {},
       {"offsets", "[2]", "[3]"}},
      {"grouped_matmul_backward_weight",
       {f32({4, 3}), f32({4, 5}), {Shape{2}, DType::i32}},
       {{"experts", int64_t{2}}},
       {"offsets", "[2]", "[3]"}},
      {"router_losses", {f32({4, 3}), {Shape{3}, DType::i32}}, {}, {"offsets", "[3]", "[4]"}},
      {"loss_seed", {f32({1})}, {}, {"[1]"}},
      {"gradient_norm", {f32({1}), f32({3})}, {}, {"step state", "[1]"}},
      {"sgd_update",
       {kState, f32({2}), f32({3}), f32({2}), f32({4}), f32({2}), f32({3})},
       kTwo,
       {"[4]", "[3]"}},
      {"adamw_update", {kState, f32({2}), f32({2}), f32({2}), f32({3})}, kOne, {"[3]", "[2]"}},
      {"all_reduce_begin", {f32({2}), {Shape{2}, DType::f64}}, {}, {"f32[2]", "f64[2]"}},
  };
  return table;
}

}  // namespace

TEST_CASE("shape rules refuse operands that do not fit and name both shapes") {
  for (const BadCall& call : bad_calls()) {
    INFO(call.op);
    try {
      find_op(call.op)->output_specs(call.inputs, call.attributes);
      FAIL_CHECK("was accepted");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::usage);
      for (const std::string& part : call.named) {
        CHECK_THAT(error.what(), Catch::Matchers::Contains(part));
      }
    }
  }
}

TEST_CASE("every shape rule counts its inputs") {
  for (const OpDef& op : all_ops()) {
    if (op.name == "receive_begin") continue;  // has none
    INFO(op.name);
    try {
      op.output_specs({}, {{"count", int64_t{1}}});
      FAIL_CHECK("was accepted");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::usage);
      CHECK_THAT(error.what(), Catch::Matchers::Contains("got 0"));
    }
  }
}

TEST_CASE("sizes that overflow are an error, not a wrong number") {
  const int64_t most = std::numeric_limits<int64_t>::max();
  CHECK_THROWS_AS(Shape({most, 2}).elements(), Error);
  CHECK_THROWS_AS(Shape({int64_t{1} << 40, int64_t{1} << 20}).elements(), Error);
  CHECK_THROWS_AS(window_extent("conv2d", 8, most, 1, 0, 2), Error);
  CHECK_THROWS_AS(window_extent("conv2d", 8, 3, 1, most, 1), Error);
  CHECK_THROWS_AS(window_extent("conv2d", 8, 3, 1, 0, most), Error);
  CHECK(window_extent("conv2d", 8, 3, 2, 1, 1) == 4);
}

TEST_CASE("a fused program reads back as it was printed, and rubbish is refused") {
  const std::vector<FusedStep> steps{
      {"relu_backward", {0, 1}}, {"affine", {2}, -1.0 / 3, 1e-310}, {"add", {3, 12}}};
  CHECK(parse_fused_program(print_fused_program(steps)) == steps);
  CHECK(parse_fused_program("").empty());
  for (const char* text :
       {"add", "add(", "add()", "add(0", "add(0, 1", "add(0,1)", "(0)", "add(0) mul(1)", "add(0);",
        "affine(0; 1)", "affine(0; x, 1)", "affine(0; 1, 2", "add(99999999999)"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_fused_program(text), Error);
  }
  const SpecList two(2, f32({3}));
  for (const char* text : {"", "add(0, 2)", "add(0, -1)", "matmul(0, 1)", "add(0, 1, 1)"}) {
    INFO(text);
    CHECK_THROWS_AS(
        find_op("fused_elementwise")->output_specs(two, {{"program", std::string(text)}}), Error);
  }
}
