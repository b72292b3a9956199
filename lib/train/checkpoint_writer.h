// Saves while training goes on: the state is copied to host memory at once, and a thread of its own
// orders, checksums and writes it.
//
// The bytes are those of a synchronous save. A checkpoint is complete or absent as ever, so a
// process that is killed meanwhile loses that one checkpoint and nothing else. At most one write is
// under way; its copy of the state is kept for the next one.
//
// Threads: used by one thread. Errors are Error(storage) and come out of the call that follows the
// failed write, at the latest of finish().
#pragma once

#include <filesystem>
#include <future>
#include <optional>
#include <string>

#include "train/checkpoint.h"

namespace dltrain {

class CheckpointWriter {
 public:
  // `config`: the resolved configuration, saved with each checkpoint. `background` false: save()
  // returns when the checkpoint is complete, and copies nothing.
  CheckpointWriter(std::filesystem::path folder, const Retention& retention, std::string config,
                   bool background)
      : folder_(std::move(folder)),
        retention_(retention),
        config_(std::move(config)),
        background_(background) {}
  // Waits for a write that is under way; its error, if any, is lost: call finish() before.
  ~CheckpointWriter() = default;

  // Waits for the write before and copies the state. `last`: no step follows, so this one is
  // written as without `background`.
  void save(Executor& executor, const CheckpointState& state, bool last = false);
  // The checkpoint whose write has ended since the last call; nothing while none has. Cheap.
  std::optional<std::filesystem::path> poll();
  // Waits for the write under way.
  std::optional<std::filesystem::path> finish();

 private:
  CheckpointFolder folder_;
  Retention retention_;
  std::string config_;
  bool background_;
  StateSnapshot snapshot_;
  std::future<std::filesystem::path> writing_;  // last: it uses the rest
};

}  // namespace dltrain
