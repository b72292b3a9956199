// Checkpoints that ranks write together: whole on all of them, or absent.
#include <cerrno>
#include <cstring>
#include <optional>

#include <fcntl.h>

#include "base/system_calls.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/run_folder.h"
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
  return {.step = step,
          .updates = step,
          .samples_seen = 24 * step,
          .seed = 0,
          .global_batch = 24,
          .train_samples = 96};
}

std::vector<std::string> stage_3() {
  return {"parallelism.zero_stage=3", "parallelism.bucket_mb=0.002"};
}

// A checkpoint of `ranks` ranks; returns what rank 0 holds of the state afterwards.
std::map<std::string, std::vector<std::byte>> save_by_ranks(
    const Network& network, int ranks, const std::vector<std::string>& overrides,
    const std::filesystem::path& folder) {
  std::map<std::string, std::vector<std::byte>> state;
  run_rank_threads(ranks, [&](ThreadCollectives& group) {
    Experiment experiment = layout_experiment(network, overrides);
    Session session = open_session(experiment, layout_options(group));
    start_session(session);
    CheckpointWriter writer(folder, {}, "name: x\n", true, ranks > 1 ? &group : nullptr);
    writer.save(*session.executor, at_checkpoint_parts(2));
    writer.finish();  // what it throws comes out of run_rank_threads
    StateSnapshot snapshot;
    take_snapshot(*session.executor, snapshot, false, group.rank());
    if (group.rank() != 0) return;
    for (const TensorCopy& copy : snapshot) state[copy.state] = copy.bytes;
  });
  return state;
}

ResumeChoice chosen(const std::filesystem::path& checkpoint) {
  ResumeChoice out;
  out.checkpoint = checkpoint;
  out.state = read_checkpoint_state(checkpoint, &out.tensors);
  return out;
}

}  // namespace

TEST_CASE("parts of ranks make one checkpoint, which any layout takes over") {
  const TemporaryFolder folder;
  const Network& gpt = networks()[2];
  const auto saved = save_by_ranks(gpt, 4, stage_3(), folder.path());
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
    CHECK(found == saved);
  }
}

TEST_CASE(
    "one rank hashes each byte of a checkpoint, and a rank reads its parts beside its share") {
  const Network network{"mlp",
                        {"model.layers=[{linear: 1024}, gelu, {linear: 1024}, gelu, {linear: 5}]",
                         "data.train={type: synthetic, shape: [1024], classes: 5, samples: 96}"}};
  const TemporaryFolder folder;
  const auto checkpoint = folder.path() / "step-000002";
  for (const auto& [writers, saved_stage] : {std::pair(1, 0), {2, 3}}) {
    const auto stage_of = [](int stage) {
      return std::vector{fmt::format("parallelism.zero_stage={}", stage)};
    };
    const auto saved = save_by_ranks(network, writers, stage_of(saved_stage), folder.path());
    uint64_t all = 0, pieces = 0;
    for (const auto& [name, digest] : chosen(checkpoint).tensors) {
      all += digest.bytes;
      pieces += digest.pieces.size() / kPieceDigits;
    }
    REQUIRE(pieces >= 6);
    for (const auto& [ranks, stage] : {std::pair(1, 0), {2, 0}, {4, 0}, {1, 3}, {2, 3}, {4, 3}}) {
      INFO(writers << " writers, " << ranks << " ranks, stage " << stage);
      std::vector<uint64_t> read(4, 0), hashed(4, 0);
      std::map<std::string, std::vector<std::byte>> found;
      run_rank_threads(ranks, [&](ThreadCollectives& group) {
        Experiment experiment = layout_experiment(network, stage_of(stage));
        experiment.seed = 5;
        Session session = open_session(experiment, layout_options(group));
        start_session(session);
        const ResumeChoice choice = chosen(checkpoint);
        VerifiedFiles files(checkpoint, choice.tensors, group.rank(), ranks);
        load_checkpoint(*session.executor, checkpoint, choice.state, files);
        check_internal(files.finish().empty(), "damage");
        read[static_cast<size_t>(group.rank())] = files.bytes_read();
        hashed[static_cast<size_t>(group.rank())] = files.bytes_hashed();
        StateSnapshot snapshot;
        take_snapshot(*session.executor, snapshot, false, group.rank());
        if (group.rank() != 0) return;
        for (const TensorCopy& copy : snapshot) found[copy.state] = copy.bytes;
      });
      CHECK(found == saved);
      const uint64_t share = all / static_cast<uint64_t>(ranks);
      CHECK(std::accumulate(hashed.begin(), hashed.end(), uint64_t{0}) == all);
      CHECK(*std::max_element(hashed.begin(), hashed.end()) <= share + kPieceBytes);
      const uint64_t most = *std::max_element(read.begin(), read.end());
      CHECK(most <= (stage == 0 ? all : 2 * share + kPieceBytes));
    }
  }
}

TEST_CASE("every rank learns of damage to any byte of a checkpoint while it is loaded") {
  const TemporaryFolder folder;
  const auto checkpoint = folder.path() / "step-000002";
  save_by_ranks(networks()[2], 2, stage_3(), folder.path());
  const auto load = [&](int ranks, const std::vector<std::string>& overrides) {
    std::vector<std::string> damage(static_cast<size_t>(ranks));
    run_rank_threads(ranks, [&](ThreadCollectives& group) {
      Experiment experiment = layout_experiment(networks()[2], overrides);
      Session session = open_session(experiment, layout_options(group));
      start_session(session);
      damage[static_cast<size_t>(group.rank())] =
          load_chosen(*session.executor, chosen(checkpoint), ranks > 1 ? &group : nullptr);
    });
    return damage;
  };
  const std::vector<std::string> whole{"parallelism.zero_stage=0"};
  CHECK(load(2, stage_3()) == std::vector<std::string>(2));
  for (const char* name :
       {"model-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors"}) {
    const auto path = checkpoint / name;
    const std::string content = read_file(path, 1 << 24, ExitCode::storage);
    std::vector<std::string> damaged(4, content);
    damaged[0][3] = '\x40';                 // the length of the header
    damaged[1][content.size() / 2] ^= 1;    // a value
    damaged[2].resize(content.size() - 1);  // truncated
    damaged[3] += '\0';
    for (const std::string& bytes : damaged) {
      write_file_atomically(path, bytes);
      for (const auto& found : {load(1, whole), load(2, whole), load(2, stage_3())}) {
        for (const std::string& text : found) {
          CHECK(text.starts_with(path.string() + ": damaged: "));
          CHECK(text == found.front());
        }
      }
    }
    remove_recursively(path);
    for (const std::string& text : load(2, stage_3())) {
      CHECK(text.find(name) != std::string::npos);
    }
    write_file_atomically(path, content);
  }
  CHECK(load(2, stage_3()) == std::vector<std::string>(2));
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
