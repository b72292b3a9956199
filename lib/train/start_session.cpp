// The first values of all state.
#include "config/paths.h"
#include "train/final_bias.h"
#include "train/session.h"
#include "train/weights.h"

namespace dltrain {

StartReport start_session(Session& session, bool weights_follow) {
  const Experiment& experiment = *session.experiment;
  session.executor->allocate();
  initialize_weights(*session.executor, static_cast<uint64_t>(experiment.seed));
  if (session.teacher) load_constants(*session.executor, session.teacher->checkpoint);
  if (experiment.model.final_bias_from_data && !weights_follow) set_final_bias(session);
  StartReport report;
  if (experiment.model.init_from && !weights_follow) {
    const std::string& path = *experiment.model.init_from;
    refuse_missing_paths(ObjectRef::of(session.experiment->model), ExitCode::storage);
    // A run may write a newer checkpoint between the looks of two ranks.
    const auto find = [&] { return place_of_weights(path).string(); };
    const Agreement& agree = session.options.agree;
    LoadedWeights loaded =
        load_weights(*session.executor, agree ? agree("weights of " + path, find) : find(),
                     experiment.model.rename, experiment.model.strict);
    report = {true,
              loaded.from,
              loaded.loaded,
              std::move(loaded.missing),
              std::move(loaded.unexpected),
              std::move(loaded.not_finite)};
  }
  start_averages(*session.executor);
  session.executor->set_progress({.loss_scale = session.first_loss_scale()});
  return report;
}

}  // namespace dltrain
