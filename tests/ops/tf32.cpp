// TF32 against numpy's record (scripts/record_golden_tf32.py): operands to the bit, and a product.
#include <bit>
#include <cmath>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "catch.h"
#include "cpu/engine.h"
#include "max_or_inf.h"
#include "ops/runner.h"
#include "reference/engine.h"
#include "tensor/low_precision.h"

using namespace dltrain;

static nlohmann::json recorded_tf32() {
  return nlohmann::json::parse(read_file(DLTRAIN_SOURCE_DIR "/tests/golden/tf32.json",
                                         uint64_t{1} << 20, ExitCode::internal));
}

TEST_CASE("operands of TF32 products are rounded as numpy rounds them") {
  const auto golden = recorded_tf32();
  const auto x = golden["x"].get<std::vector<uint32_t>>(),
             rounded = golden["rounded"].get<std::vector<uint32_t>>();
  REQUIRE(x.size() > 250);
  for (size_t i = 0; i < x.size(); ++i) {
    INFO(std::hex << x[i]);
    CHECK(std::bit_cast<uint32_t>(to_tf32(std::bit_cast<float>(x[i]))) == rounded[i]);
  }
  CHECK(std::isnan(to_tf32(std::nanf(""))));
  CHECK(std::isnan(to_tf32(std::bit_cast<float>(0x7FFFFFFFu))));
}

TEST_CASE("a TF32 product is that of rounded operands, and an f32 product is not") {
  const auto golden = recorded_tf32();
  const auto tensor = [&](const char* name, const Shape& shape) {
    HostTensor out({shape, DType::f32});
    const auto bits = golden[name].get<std::vector<uint32_t>>();
    for (size_t i = 0; i < bits.size(); ++i) {
      out.set(static_cast<int64_t>(i), std::bit_cast<float>(bits[i]));
    }
    return out;
  };
  const auto expected = golden["product"].get<std::vector<double>>();
  for (const Engine* engine : {&cpu_engine(), &reference_engine()}) {
    OpRunner runner(*engine);
    OpRun run{.op = "matmul",
              .attributes = {{"math", std::string("tf32")}},
              .inputs = {tensor("a", {3, 40}), tensor("b", {40, 5})}};
    const auto worst = [&] {
      const HostTensor y = runner.run(run).outputs[0];
      double out = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        out = max_or_inf(out, std::abs(y.get(static_cast<int64_t>(i)) - expected[i]));
      }
      return out;
    };
    INFO(engine->name);
    CHECK(worst() < 5e-6);
    run.attributes = {};
    CHECK(worst() > 1e-4);
  }
}
