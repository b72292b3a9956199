// Compares an uninterrupted run with one that is resumed from a checkpoint.
#include <unistd.h>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checks/checks_support.h"
#include "run/trainer.h"

namespace dltrain {
namespace {

std::filesystem::path temporary_path() {
  std::error_code error;
  const auto folder = std::filesystem::temp_directory_path(error);
  if (error) fail(ExitCode::storage, "no folder for temporary files (TMPDIR): {}", error.message());
  return folder / fmt::format("dltrain-check-{}", getpid());
}

struct TemporaryFolder {
  std::filesystem::path path = temporary_path();
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

std::vector<std::byte> train_to(const CheckOptions& options, int64_t steps, int64_t resume_at,
                                const std::filesystem::path& folder) {
  std::vector<std::string> overrides = one_rank_overrides();
  overrides.insert(
      overrides.end(),
      {fmt::format("training.max_steps={}", steps), "training.num_epochs=null",
       fmt::format("checkpoint.save_steps={}", steps / 2), "checkpoint.save_total_limit=0"});
  Experiment experiment = options.load(overrides);
  accumulate_on_one_rank(experiment.training);
  Session session = open_session(experiment, {.engines = options.engines, .evaluation = false});
  start_session(session);
  if (resume_at > 0) {
    const auto checkpoint = folder / "checkpoints" / fmt::format("step-{:06}", resume_at);
    const CheckpointState state = read_checkpoint_state(checkpoint);
    load_checkpoint(*session.executor, checkpoint, state);
    session.resume_at(state.position());
  }
  train(session, {}, {.run_folder = folder, .resolved_config = {}, .handle_signals = false});
  return session.executor->read_checkpointed();
}

}  // namespace

CheckResult check_resume(const CheckOptions& options, int64_t) {
  constexpr int64_t kSteps = 6;
  const TemporaryFolder folder;
  const auto whole = train_to(options, kSteps, 0, folder.path);
  const auto resumed = train_to(options, kSteps, kSteps / 2, folder.path);
  size_t different = 0;
  for (size_t i = 0; i < whole.size() && i < resumed.size(); ++i)
    different += whole[i] != resumed[i];
  return pass_if(whole.size() == resumed.size() && different == 0,
                 "{} steps against {} + checkpoint + {}: {} of {} bytes of state differ", kSteps,
                 kSteps / 2, kSteps / 2, different, whole.size());
}

}  // namespace dltrain
