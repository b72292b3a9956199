#include "checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <chrono>

#include "runtime/remote_error.h"

namespace dltrain {

bool CheckpointWriter::is_ready() const {
  return part_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

void CheckpointWriter::save(Executor& executor, const CheckpointState& state, bool last) {
  finish();
  const bool at_once = last || !background_;
  const int rank = sharded() ? group_->rank() : 0;
  state_ = state;
  take_snapshot(executor, snapshot_, at_once, rank, sharded() ? group_->size() : 1);
  if (sharded()) {
    run_on_all_ranks(group_, [&] {
      if (rank == 0) folder_.begin(state_.step);
    });
  }
  const auto write = [this, rank] {
    if (!sharded()) folder_.begin(state_.step);
    Checksums own = folder_.write_part(snapshot_, state_.step, rank);
    if (!sharded()) path_ = folder_.finish(snapshot_, state_, config_, retention_, {own});
    return own;
  };
  part_ = std::async(at_once ? std::launch::deferred : std::launch::async, write);
  if (at_once) part_.wait();
}

bool CheckpointWriter::writes() const {
  return part_.valid() && !is_ready();
}

std::optional<std::filesystem::path> CheckpointWriter::poll() {
  if (!part_.valid() || (!sharded() && !is_ready())) return std::nullopt;
  return finish();
}

std::optional<std::filesystem::path> CheckpointWriter::finish() {
  if (!part_.valid()) return std::nullopt;
  Checksums own;
  run_on_all_ranks(group_, [&] { own = part_.get(); });
  if (!sharded()) return path_;
  const std::vector<Checksums> parts = collect(own);
  run_on_all_ranks(group_, [&] {
    if (group_->rank() != 0) return;
    path_ = folder_.finish(snapshot_, state_, config_, retention_, parts);
  });
  return path_;
}

// Returns the checksums of the files that each rank has written.
std::vector<Checksums> CheckpointWriter::collect(const Checksums& own) {
  static const auto subject = std::make_shared<const std::string>("parts of a checkpoint");
  const auto ranks = static_cast<size_t>(group_->size());
  const std::string text = checksums_to_json(own);
  const auto length = static_cast<int64_t>(text.size());
  std::vector<int64_t> lengths(ranks);
  HostStream host;
  group_->wait(group_->all_gather(&length, lengths.data(), 1, DType::i64, host, subject), host);
  const auto most = static_cast<size_t>(std::ranges::max(lengths));
  std::string padded = text, all(most * ranks, '\0');
  padded.resize(most);
  group_->wait(group_->all_gather(padded.data(), all.data(), most, DType::u8, host, subject), host);
  std::vector<Checksums> out;
  for (size_t rank = 0; rank < ranks && group_->rank() == 0; ++rank) {
    out.push_back(checksums_from_json(all.substr(rank * most, static_cast<size_t>(lengths[rank])),
                                      kChecksumsFile));
  }
  return out;
}

}  // namespace dltrain
