#include "train/checkpoint_writer.h"

#include <chrono>

namespace dltrain {

void CheckpointWriter::save(Executor& executor, const CheckpointState& state, bool last) {
  finish();
  const bool at_once = last || !background_;
  take_snapshot(executor, snapshot_, at_once);
  writing_ = std::async(at_once ? std::launch::deferred : std::launch::async, [this, state] {
    return folder_.save(snapshot_, state, config_, retention_);
  });
  if (at_once) writing_.wait();
}

std::optional<std::filesystem::path> CheckpointWriter::poll() {
  if (!writing_.valid()) return std::nullopt;
  if (writing_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return std::nullopt;
  return writing_.get();
}

std::optional<std::filesystem::path> CheckpointWriter::finish() {
  if (!writing_.valid()) return std::nullopt;
  return writing_.get();
}

}  // namespace dltrain
