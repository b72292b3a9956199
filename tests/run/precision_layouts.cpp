// TF32, excepted layers and a padded vocabulary over ranks: a tied GPT with dropout.
#include "run/layout_run.h"

using namespace dltrain;

TEST_CASE("tf32, precision by layer and padding of the vocabulary work in every layout") {
  struct Setting {
    const char* override;
    double tolerance;  // of losses: roundings of f32, of TF32, of bf16
  };
  for (const Setting& setting :
       {Setting{"model.pad_vocab_to=64", 1e-5}, Setting{"precision.matmul=tf32", 2e-3},
        Setting{"precision={compute: bf16, overrides: {lm_head: f32, 'h.0.*': tf32}}", 5e-3}}) {
    const LayoutRun one = layout_run(networks()[2], 1, {setting.override});
    for (const std::vector<std::string>& layout : std::vector<std::vector<std::string>>{
             {"parallelism.data=2"},
             {"parallelism.zero_stage=3"},
             {"parallelism.context=2"},
             {"parallelism.pipeline=2", "training.micro_batch_size=6"},
             {"parallelism.tensor=2"}}) {
      const bool padded = std::string(setting.override).starts_with("model");
      if (padded && layout[0] == "parallelism.tensor=2") continue;  // refused
      INFO(setting.override << ", " << layout[0]);
      std::vector<std::string> overrides = layout;
      overrides.emplace_back(setting.override);
      const LayoutRun two = layout_run(networks()[2], 2, overrides);
      INFO("losses within " << greatest_difference(two.losses, one.losses));
      CHECK(greatest_difference(two.losses, one.losses) < setting.tolerance);
    }
  }
}
