#include "compile/alignment.h"

#include "catch.h"
#include "graph/builder.h"

namespace dltrain {
namespace {

TEST_CASE("misaligned axes are named by layer, those without 16 bytes first") {
  Graph graph;
  GraphBuilder b(graph);
  const auto weight = [&](int64_t outputs, int64_t inputs) {
    return b.add_value("", {Shape{outputs, inputs}, DType::bf16}, Role::constant);
  };
  const auto linear = [&](const char* layer, ValueId x, int64_t outputs) {
    b.set_layer(layer);
    return b.emit1("matmul", {x, weight(outputs, b.spec(x).shape[-1])}, {{"transpose_b", true}});
  };
  const ValueId x = b.add_value("x", {Shape{8, 25, 768}, DType::bf16}, Role::input);
  ValueId y = linear("h.0", x, 200);
  y = linear("h.1", linear("h.0.out", y, 768), 200);
  y = linear("fits", linear("h.1.out", y, 768), 64);
  y = linear("lm_head", y, 50257);
  const ValueId targets = b.add_value("targets", {Shape{8, 25}, DType::i32}, Role::input);
  b.set_layer("loss");
  b.emit("softmax_cross_entropy", {y, targets});
  const auto axes = misaligned_axes(graph);
  REQUIRE(axes.size() == 4);
  CHECK(axes[0].layer == "lm_head");
  CHECK(axes[0].axis == "outputs");
  CHECK(axes[0].extent == 50257);
  CHECK(axes[0].multiple == 8);
  CHECK(axes[0].vocabulary);
  CHECK(axes[1].axis == "rows");  // 8 · 25 in every layer
  CHECK(axes[1].extent == 200);
  CHECK(axes[1].multiple == 64);
  CHECK(axes[1].layers == 6);
  CHECK(axes[2].layer == "h.0");
  CHECK(axes[2].axis == "outputs");
  CHECK(axes[2].layers == 2);
  CHECK_FALSE(axes[2].vocabulary);
  CHECK(axes[3].layer == "h.0.out");
  CHECK(axes[3].axis == "inputs");
}

TEST_CASE("tiles of a product fill waves of multiprocessors") {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.add_value("x", {Shape{1024, 768}, DType::bf16}, Role::input);
  const ValueId w = b.add_value("w", {Shape{2304, 768}, DType::bf16}, Role::constant);
  b.emit1("matmul", {x, w}, {{"transpose_b", true}});
  b.emit1("matmul", {x, w}, {{"transpose_b", true}});
  const ValueId g = b.add_value("g", {Shape{1024, 100}, DType::bf16}, Role::input);
  b.emit1("matmul", {g, x}, {{"transpose_a", true}});  // [100, 768], 1024 terms
  const auto products = product_tiles(graph, find_gpus("h100").front());
  REQUIRE(products.size() == 2);
  CHECK(products[0].count == 2);
  CHECK(products[0].tiles == 8 * 18);
  CHECK(products[0].waves == Approx(144.0 / 132));
  CHECK(products[0].full == Approx(144.0 / 264));  // the second wave has 12 tiles
  CHECK(products[0].seconds > products[1].seconds);
  CHECK(products[1].m == 100);
  CHECK(products[1].k == 1024);
  CHECK(products[1].tiles == 6);
  CHECK(products[1].full == Approx(100.0 * 768 / (132 * 128 * 128)));
}

}  // namespace
}  // namespace dltrain
