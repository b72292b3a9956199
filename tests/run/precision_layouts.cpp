// TF32, excepted layers and a padded vocabulary over ranks: a tied GPT with dropout.
#include "run/low_precision.h"

using namespace dltrain;

TEST_CASE("tf32, precision by layer and padding of the vocabulary work in every layout") {
  struct Setting {
    const char* override;
    int bits;
  };
  for (const Setting& setting :
       {Setting{"model.pad_vocab_to=64", kBitsOfF32}, Setting{"precision.matmul=tf32", kBitsOfTf32},
        Setting{"precision={compute: bf16, overrides: {lm_head: f32, 'h.0.*': tf32}}",
                kBitsOfBf16}}) {
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
      const bool f32 = setting.bits == kBitsOfF32;
      check_close(two, one,
                  f32 ? kToleranceOfF32 : low_precision(networks()[2], {}, setting.bits, 2));
    }
  }
}
