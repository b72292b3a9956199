// The arithmetic that a model asks for, against the formula that people know.
#include "compile/model_flops.h"

#include <fstream>

#include "catch.h"
#include "profile/watching.h"
#include "temporary_folder.h"

using namespace dltrain;
using Catch::Matchers::WithinRel;

namespace {

constexpr const char* kGpt =
    "{type: gpt2, num_layers: 2, hidden_size: 32, num_heads: 2, max_positions: 16}";

// Returns the FLOP of a model of two layers of width 32 on 8 sequences of 16 of 20 characters.
double gpt_flops(const std::vector<std::string>& more, const std::string& model = kGpt) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 4000; ++i) text += static_cast<char>('a' + (i * i + i / 7) % 20);
  std::ofstream(folder / "text.txt") << text;
  std::vector<std::string> overrides{
      "model=" + model,
      "data={type: text, tokenizer: char, sequence_length: 16, path: " +
          (folder / "text.txt").string() + "}",
      "optimizer={type: adamw, learning_rate: 0.001}",
      "training={global_batch_size: 8, max_steps: 2}", "device=cpu"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  auto experiment = load_config<Experiment>({.files = {}, .overrides = overrides});
  const Session session =
      open_session(experiment, {.engines = host_engines(), .evaluation = false});
  REQUIRE(*experiment.model.vocab_size == 20);
  return session.step_model_flops();
}

TEST_CASE("a transformer's arithmetic is 6 N and 6 L d T a token") {
  constexpr double d = 32, layers = 2, tokens = 16;
  constexpr double weights = layers * 12 * d * d + 20 * d;
  constexpr double whole = 8 * tokens * (6 * weights + 6 * layers * d * tokens);
  CHECK_THAT(gpt_flops({}), WithinRel(whole, 1e-12));
  // However it is computed.
  CHECK_THAT(gpt_flops({"memory.recompute=full"}), WithinRel(whole, 1e-12));
  CHECK_THAT(gpt_flops({"training.gradient_accumulation_steps=2"}), WithinRel(whole, 1e-12));
  CHECK_THAT(gpt_flops({"precision.compute=bf16"}), WithinRel(whole, 1e-12));
  // Frozen parameters need no gradient.
  CHECK(gpt_flops({"training.freeze=[\"*.mlp.*\"]"}) < whole);
}

TEST_CASE("of a mixture of experts the chosen ones count") {
  constexpr double d = 32, layers = 2, tokens = 16, experts = 6, chosen = 2, hidden = 40;
  constexpr double layer = 4 * d * d + chosen * 3 * d * hidden + experts * d;
  constexpr double whole = 8 * tokens * (6 * (layers * layer + 20 * d) + 6 * layers * d * tokens);
  const double found =
      gpt_flops({},
                "{type: mixtral, num_layers: 2, hidden_size: 32, num_heads: 2, num_kv_heads: 2, "
                "num_experts: 6, experts_per_token: 2, intermediate_size: 40, balance_loss: 0.01}");
  CHECK_THAT(found, WithinRel(whole, 1e-12));
}

}  // namespace
