#include "train/saved_defaults.h"

#include "config/load.h"

namespace dltrain {

void keep_saved_defaults(Experiment& experiment, const std::filesystem::path& folder) {
  DataConfig& data = experiment.data;
  const bool split = data.eval_fraction && !data.given("eval_split");
  const bool order = data.train->kind == "tensors" && !data.train->given("shuffle");
  if (!split && !order) return;
  for (const auto& place : {folder, folder / "latest", folder / "checkpoints" / "latest"}) {
    if (!std::filesystem::exists(place / "state.json")) continue;
    try {
      const auto saved =
          load_config<Experiment>({.files = {place / "config.yaml"}, .overrides = {}});
      if (split) data.eval_split = saved.data.eval_split;
      if (order) data.train->shuffle = saved.data.train->shuffle;
    } catch (const ConfigError&) {
      // Whoever reads the checkpoint says what is wrong with it.
    }
    return;
  }
}

}  // namespace dltrain
