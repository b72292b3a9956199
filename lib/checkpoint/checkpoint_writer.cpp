#include "checkpoint/checkpoint_writer.h"

#include <chrono>
#include <cstring>
#include <exception>

#include "base/error.h"
#include "runtime/remote_error.h"

namespace dltrain {
namespace {

constexpr size_t kMaxFiles = 3, kNameBytes = 64, kHashBytes = 32;

// Names and checksums of the files that a rank has written.
struct PartMessage {
  struct File {
    char name[kNameBytes];
    char hash[kHashBytes];
    uint64_t bytes;
  };
  File files[kMaxFiles];
};

template <typename T>
bool is_ready(const std::future<T>& future) {
  return future.valid() && future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace

void CheckpointWriter::save(Executor& executor, const CheckpointState& state, bool last) {
  finish();
  const bool at_once = last || !background_;
  const auto policy = at_once ? std::launch::deferred : std::launch::async;
  state_ = state;
  if (!sharded()) {
    take_snapshot(executor, snapshot_, at_once);
    writing_ =
        std::async(policy, [this] { return folder_.save(snapshot_, state_, config_, retention_); });
    if (at_once) writing_.wait();
    return;
  }
  take_snapshot(executor, snapshot_, at_once, group_->rank(), group_->size());
  run_on_all_ranks(group_, [&] {
    if (group_->rank() == 0) folder_.begin_sharded(state.step);
  });
  part_ = std::async(policy,
                     [this] { return folder_.write_part(snapshot_, state_.step, group_->rank()); });
  if (at_once) part_.wait();
}

bool CheckpointWriter::writes() const {
  return sharded() ? part_.valid() && !is_ready(part_) : writing_.valid() && !is_ready(writing_);
}

std::optional<std::filesystem::path> CheckpointWriter::poll() {
  if (sharded()) return finish();
  if (!is_ready(writing_)) return std::nullopt;
  return writing_.get();
}

std::optional<std::filesystem::path> CheckpointWriter::finish() {
  if (sharded() && part_.valid()) return complete();
  if (!writing_.valid()) return std::nullopt;
  return writing_.get();
}

std::vector<Checksums> CheckpointWriter::collect(const Checksums& own) {
  PartMessage message{};
  check_internal(own.size() <= kMaxFiles, "{} files of one rank", own.size());
  size_t next = 0;
  for (const auto& [name, digest] : own) {
    PartMessage::File& file = message.files[next++];
    check_internal(name.size() < kNameBytes && digest.xxh3_128.size() == kHashBytes,
                   "a file called {}", name);
    std::memcpy(file.name, name.data(), name.size());
    std::memcpy(file.hash, digest.xxh3_128.data(), kHashBytes);
    file.bytes = digest.bytes;
  }
  std::vector<PartMessage> all(static_cast<size_t>(group_->size()));
  static const auto subject = std::make_shared<const std::string>("parts of a checkpoint");
  group_->wait(
      group_->all_gather(&message, all.data(), sizeof(PartMessage), DType::u8, stream_, subject),
      stream_);
  std::vector<Checksums> out;
  for (const PartMessage& part : all) {
    Checksums files;
    for (const PartMessage::File& file : part.files) {
      if (file.name[0] != 0) files[file.name] = {file.bytes, std::string(file.hash, kHashBytes)};
    }
    out.push_back(std::move(files));
  }
  return out;
}

std::filesystem::path CheckpointWriter::complete() {
  Checksums own;
  run_on_all_ranks(group_, [&] { own = part_.get(); });
  const std::vector<Checksums> parts = collect(own);
  std::filesystem::path path;
  run_on_all_ranks(group_, [&] {
    if (group_->rank() == 0) {
      path = folder_.finish_sharded(snapshot_, state_, config_, retention_, parts);
    }
  });
  return path;
}

}  // namespace dltrain
