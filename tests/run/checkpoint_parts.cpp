// Checkpoints that ranks write together: whole on all of them, or absent.
#include <cerrno>
#include <cstring>
#include <optional>

#include <fcntl.h>

#include "base/system_calls.h"
#include "checkpoint/checkpoint_writer.h"
#include "refusal.h"
#include "run/layout_run.h"
#include "temporary_folder.h"

using namespace dltrain;

namespace {

// The disk of a rank's part is full.
class PartFails final : public SystemCalls {
 public:
  explicit PartFails(int rank) : part_(fmt::format("-{:05}-of-", rank + 1)) {}
  int open(const char* path, int flags, mode_t mode) override {
    if (std::strstr(path, part_.c_str()) == nullptr || (flags & O_WRONLY) == 0) {
      return SystemCalls::open(path, flags, mode);
    }
    errno = ENOSPC;
    return -1;
  }

 private:
  std::string part_;
};

CheckpointState at_checkpoint_parts(int64_t step) {
  return {.step = step, .updates = step, .seed = 0, .global_batch = 24, .train_samples = 96};
}

std::vector<std::string> stage_3() {
  return {"parallelism.zero_stage=3", "parallelism.bucket_mb=0.002"};
}

}  // namespace

TEST_CASE("parts of ranks make one checkpoint, which any layout takes over") {
  const TemporaryFolder folder;
  const Network& gpt = networks()[2];
  LayoutRun saved;
  run_rank_threads(4, [&](ThreadCollectives& ranks) {
    Experiment experiment = layout_experiment(gpt, stage_3());
    Session session = open_session(experiment, layout_options(ranks));
    start_session(session);
    CheckpointWriter writer(folder.path(), {}, "name: x\n", true, &ranks);
    writer.save(*session.executor, at_checkpoint_parts(2));
    writer.finish();  // what it throws comes out of run_rank_threads
    StateSnapshot snapshot;
    take_snapshot(*session.executor, snapshot, false, ranks.rank());
    if (ranks.rank() != 0) return;
    for (const TensorCopy& copy : snapshot) saved.state[copy.state] = copy.bytes;
  });
  const auto checkpoint = folder.path() / "step-000002";
  CHECK(std::filesystem::exists(checkpoint / "model-00004-of-00004.safetensors"));
  CHECK(std::filesystem::exists(checkpoint / "optimizer.safetensors.index.json"));
  for (const auto& [ranks, stage] : {std::pair(1, 0), {2, 1}, {3, 2}, {3, 3}, {2, 0}}) {
    INFO(ranks << " ranks, stage " << stage);
    std::map<std::string, std::vector<std::byte>> found;
    const auto override = fmt::format("parallelism.zero_stage={}", stage);
    run_rank_threads(ranks, [&](ThreadCollectives& group) {
      Experiment experiment = layout_experiment(gpt, {"seed=5", override});
      Session session = open_session(experiment, layout_options(group));
      start_session(session);
      load_checkpoint(*session.executor, checkpoint, read_checkpoint_state(checkpoint));
      StateSnapshot snapshot;
      take_snapshot(*session.executor, snapshot, false, group.rank());
      if (group.rank() != 0) return;
      for (const TensorCopy& copy : snapshot) found[copy.state] = copy.bytes;
    });
    CHECK(found == saved.state);
  }
}

TEST_CASE("a part that cannot be written leaves the checkpoint before, and every rank knows") {
  const int failing = GENERATE(0, 1);
  const auto fails = static_cast<size_t>(failing);
  const TemporaryFolder folder;
  PartFails full(failing);
  for (bool background : {true, false}) {
    std::vector<std::string> said(2);
    std::vector<ExitCode> codes(2, ExitCode::ok);
    run_rank_threads(2, [&](ThreadCollectives& ranks) {
      const auto rank = static_cast<size_t>(ranks.rank());
      Experiment experiment = layout_experiment(networks()[0], stage_3());
      Session session = open_session(experiment, layout_options(ranks));
      start_session(session);
      CheckpointWriter writer(folder.path(), {}, "name: x\n", background, &ranks);
      writer.save(*session.executor, at_checkpoint_parts(1));
      writer.finish();
      ranks.barrier();
      std::optional<ReplaceSystemCalls> replaced;  // of the whole process
      if (rank == 0) replaced.emplace(full);
      ranks.barrier();
      try {
        writer.save(*session.executor, at_checkpoint_parts(2));
        writer.finish();
      } catch (const Error& error) {
        said[rank] = error.what();
        codes[rank] = error.code();
      }
      ranks.barrier();
    });
    INFO(said[0] << " / " << said[1]);
    CHECK((codes[fails] == ExitCode::storage && codes[1 - fails] == ExitCode::rank));
    CHECK(said[1 - fails] == fmt::format("rank {} has failed", failing));
    CHECK(said[fails].find("No space left") != std::string::npos);
    CHECK(CheckpointFolder(folder.path()).list() == std::vector{folder.path() / "step-000001"});
    CHECK_NOTHROW(read_checkpoint_state(folder.path() / "step-000001"));
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      CHECK_FALSE(entry.path().filename().string().starts_with(".tmp-"));
    }
  }
}
