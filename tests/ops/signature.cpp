// Signatures of ops (lib/ops/signature.h).
#include "ops/signature.h"

#include "base/error.h"
#include "catch.h"
#include "ops/step_state.h"

using namespace dltrain;

namespace {

constexpr DType kF32 = DType::f32, kBf16 = DType::bf16;
const TensorSpec kStepSpec{Shape{sizeof(StepState)}, DType::u8}, kNone{Shape{0}, DType::u8};

}  // namespace

TEST_CASE("a signature binds extents and dtypes, and makes the outputs that are wanted") {
  const Signature signature =
      "x[N,*,C] b[C]:sum? ids[N]:i32 -> y[N,*,K]:output_dtype db[C]:sum?b all[1]:f64?@all; K=size";
  const TensorSpec x{Shape{2, 5, 6, 3}, kBf16}, b{Shape{3}, kF32}, ids{Shape{2}, DType::i32};
  const auto out = signature.match("op", std::vector{x, b, ids}, {{"size", int64_t{4}}});
  CHECK(out.specs == SpecList{{Shape{2, 5, 6, 4}, kBf16}, b});
  CHECK(out.aliases == std::vector{-1, -1});
  const Attributes more{{"size", int64_t{4}}, {"output_dtype", "f32"}, {"all", true}};
  const auto others = signature.match("op", std::vector{x, kNone, ids}, more);
  CHECK(others.specs == SpecList{{Shape{2, 5, 6, 4}, kF32}, {Shape{1}, DType::f64}});
}

TEST_CASE("a signature with repeated tensors has one of each name in every group") {
  const Signature signature = "step | p[*]:parameter m[*]?@momentum copy[*]:low -> p! m! copy!";
  const TensorSpec a{Shape{2}, kF32}, b{Shape{3, 4}, kF32}, low{Shape{3, 4}, kBf16};
  const Attributes two{{"count", int64_t{2}}, {"momentum", 0.9}};
  const auto out = signature.match("op", std::vector{kStepSpec, a, b, a, b, kNone, low}, two);
  CHECK(out.specs == SpecList{a, b, a, b, low});
  CHECK(out.aliases == std::vector{1, 2, 3, 4, 6});
  const auto plain = signature.match("op", std::vector{kStepSpec, b, low}, {});
  CHECK(plain.aliases == std::vector{1, 2});
}

TEST_CASE("a signature names the tensor that does not fit, and what is expected") {
  const Signature signature = "x[*,C] w[C,D] y[*,D]";
  const auto refused = [&](SpecList inputs) -> std::string {
    try {
      signature.match("op", inputs, {});
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::usage);
      return error.what();
    }
    return "accepted";
  };
  const TensorSpec x{Shape{7, 2}, kF32}, w{Shape{2, 3}, kF32};
  CHECK(refused({x, w, {Shape{7, 3}, kF32}}) == "accepted");
  CHECK(refused({x, {Shape{4, 3}, kF32}}) == "op: expects 3 inputs, got 2");
  CHECK(refused({x, {Shape{4, 3}, kF32}, x}) == "op: w has shape [4, 3], expected [2, D]");
  CHECK(refused({x, {Shape{2}, kF32}, x}) == "op: w has shape [2], expected [2, D]");
  CHECK(refused({x, w, {Shape{8, 3}, kF32}}) == "op: y has shape [8, 3], expected [7, 3]");
  CHECK(refused({x, {Shape{2, 3}, kBf16}, x}) == "op: w is bf16[2, 3], expected f32");
  CHECK(refused({{Shape{7, 2}, DType::i32}, w, x}) == "op: expects floating inputs, got i32[7, 2]");
}
