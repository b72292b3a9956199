// Saves checkpoints during training: the state is copied to host memory, and another thread writes
// it.
//
// The files have the same bytes as those of a synchronous save. A checkpoint is complete or absent,
// so a process that is killed loses only the checkpoint that is being written. At most one write
// runs at a time; the memory of its copy is reused.
//
// If ranks hold shards of the state (ZeRO), they save together: each writes some of the tensors,
// they agree in finish() that all are written, and rank 0 publishes the checkpoint. Every rank
// must then make the same calls.
//
// Threads: used by one thread. Errors of a write are thrown by the next call, at the latest by
// finish(): Error(storage), and Error(rank) on ranks whose own part was written. A rank whose own
// part failed throws that error even if another rank was lost.
#pragma once

#include <filesystem>
#include <future>
#include <optional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "device/collectives.h"

namespace dltrain {

class CheckpointWriter {
 public:
  // `config`: the resolved configuration, saved with each checkpoint. `background` false: save()
  // returns when the checkpoint is complete, and copies nothing. `group`: that of the ranks
  // that save together; nullptr: this one alone.
  CheckpointWriter(std::filesystem::path folder, const Retention& retention, std::string config,
                   bool background, Collectives* group = nullptr)
      : folder_(std::move(folder)),
        retention_(retention),
        config_(std::move(config)),
        background_(background),
        group_(group) {}
  // Waits for a write that is under way; its error, if any, is lost: call finish() before.
  ~CheckpointWriter() = default;

  bool sharded() const { return group_ != nullptr; }
  // Waits for the write before and copies the state. `last`: no step follows, so this one is
  // written as without `background`.
  void save(Executor& executor, const CheckpointState& state, bool last = false);
  // A write of this process is under way.
  bool writes() const;
  // The checkpoint whose write has ended since the last call; nothing while none has. Cheap. Ranks
  // that save together call it when none of them writes() any more.
  std::optional<std::filesystem::path> poll();
  // Waits for the write under way.
  std::optional<std::filesystem::path> finish();

 private:
  bool is_ready() const;
  std::vector<Checksums> collect(const Checksums& own);

  CheckpointFolder folder_;
  Retention retention_;
  std::string config_;
  bool background_;
  Collectives* group_;
  StateSnapshot snapshot_;
  CheckpointState state_;        // of the write under way
  std::filesystem::path path_;   // of the last checkpoint
  std::future<Checksums> part_;  // last: it uses the rest
};

}  // namespace dltrain
