// Moments in 8 bits: their codes, and the trajectories of bitsandbytes' optimizers, which
// scripts/record_golden_optimizers.py records.
#include "shared/moment_codes.h"

#include <cmath>
#include <cstring>
#include <random>

#include "catch.h"
#include "cpu/engine.h"
#include "ops/runner.h"
#include "reference/engine.h"
#include "tensor/safetensors.h"

using namespace dltrain;

TEST_CASE("codes of moments are those of the nearest entries of their table") {
  for (const bool with_sign : {true, false}) {
    WideMomentCodes table;
    fill_moment_codes(table, with_sign);
    const std::array<float, 256> codes = dynamic_codes(with_sign);
    const auto check = [&](float x) {
      const uint8_t found = table.nearest(x), nearest = nearest_code(codes, x);
      const uint8_t expected = !with_sign && x > 0 && nearest == 0 ? 1 : nearest;
      if (found == expected) return;
      // At equal distance, but for rounding.
      INFO(x << ": " << int{found} << ", nearest " << int{expected});
      CHECK(std::abs(std::abs(x - codes[found]) - std::abs(x - codes[expected])) <=
            1.2e-7 * std::abs(x));
    };
    for (size_t i = 0; i < 256; ++i) {
      CHECK(table.nearest(codes[i]) == i);
      if (i == 255) continue;
      const float middle = (codes[i] + codes[i + 1]) / 2;
      check(std::nextafter(std::nextafter(middle, -2.0f), -2.0f));
      check(middle);
      check(std::nextafter(std::nextafter(middle, 2.0f), 2.0f));
    }
    std::mt19937 random(1);
    for (int i = 0; i < 200000; ++i) {
      const auto size = std::ldexp(static_cast<float>(random() >> 8), -24 - i % 30);
      check(size);
      if (with_sign) check(-size);
    }
    for (const float x : {1.0f, -1.0f, 0.0f, -0.0f, 1e-40f}) {
      if (with_sign || x >= 0) check(x);
    }
    table.nearest(NAN);  // reads nothing outside of the table
    table.nearest(INFINITY);
  }
}

TEST_CASE("optimizers with moments in 8 bits have the trajectories of bitsandbytes") {
  const SafetensorsFile golden(
      std::string(DLTRAIN_SOURCE_DIR) + "/tests/golden/optimizers/8bit.safetensors",
      ExitCode::storage);
  const auto read = [&](const std::string& name) {
    HostTensor out(golden.at(name).spec);
    std::memcpy(out.data.data(), golden.data(golden.at(name)).data(), out.data.size());
    return out;
  };
  struct Case {
    const char* name;
    size_t moments;
    Attributes attributes;
  };
  const Case cases[] = {{"adamw", 2, {{"weight_decay", std::vector<double>{0.1}}}},
                        {"lion", 1, {{"weight_decay", std::vector<double>{0.1}}}},
                        {"sgd", 1, {{"momentum", 0.9}}}};
  for (const Engine* engine : {&reference_engine(), &cpu_engine()}) {
    OpRunner runner(*engine);
    for (const Case& c : cases) {
      INFO(c.name);
      const HostTensor gradients = read(std::string(c.name) + ".gradients");
      const int64_t updates = gradients.spec.shape[0], n = gradients.spec.shape[1];
      OpRun run{.op = std::string(c.name) + "_update", .attributes = c.attributes, .inputs = {}};
      run.attributes.set("block", int64_t{256});
      run.attributes.set("lr_scale", std::vector<double>{1});
      if (c.moments == 1 && run.attributes.has("weight_decay")) run.attributes.set("beta2", 0.99);
      if (!run.attributes.has("weight_decay")) {
        run.attributes.set("weight_decay", std::vector<double>{0});
      }
      HostTensor state({Shape{sizeof(StepState)}, DType::u8});
      run.inputs = {state, read(std::string(c.name) + ".before"),
                    HostTensor({Shape{n}, DType::f32})};
      for (size_t k = 0; k < c.moments; ++k) run.inputs.emplace_back(TensorSpec{{n}, DType::u8});
      for (size_t k = 0; k < c.moments; ++k) {
        run.inputs.emplace_back(TensorSpec{{(n + 255) / 256}, DType::f32});
      }
      for (int64_t t = 0; t < updates; ++t) {
        StepState s = kCaseState;
        s.in.learning_rate = 0.01;
        s.out = {.grad_norm = 1, .gradient_factor = 1, .updates = t + 1, .finite = 1};
        std::memcpy(run.inputs[0].data.data(), &s, sizeof s);
        for (int64_t i = 0; i < n; ++i) run.inputs[2].set(i, gradients.get(t * n + i));
        const std::vector<HostTensor> made = runner.run(run).outputs;
        run.inputs[1] = made[0];
        for (size_t i = 1; i < made.size(); ++i) run.inputs[2 + i] = made[i];
      }
      const HostTensor after = read(std::string(c.name) + ".after");
      for (int64_t i = 0; i < n; ++i) {
        CHECK(run.inputs[1].get(i) == Approx(after.get(i)).margin(1e-6));
      }
      for (size_t k = 0; k < c.moments; ++k) {
        const std::string state_name = std::string(c.name) + ".state" + std::to_string(k + 1);
        const HostTensor codes = read(state_name), scales = read(state_name + ".absmax");
        int64_t others = 0;
        for (int64_t i = 0; i < n; ++i) others += run.inputs[3 + k].get(i) != codes.get(i) ? 1 : 0;
        CHECK(others == 0);
        for (int64_t b = 0; b < scales.elements(); ++b) {
          // That of a block of zeros is 1 there.
          const double found = run.inputs[3 + c.moments + k].get(b);
          CHECK((found == 0 ? 1 : found) == Approx(scales.get(b)).epsilon(1e-6));
        }
      }
    }
  }
}
