#include "dltrain/plan_checkpoint.h"

#include <algorithm>

#include "checkpoint/snapshot.h"

namespace dltrain {
namespace {

struct CheckpointBytes {
  double all = 0;     // in the files
  double stored = 0;  // of them, what one rank stores
  double parts = 0;   // of tensors that are sharded over ranks
};

CheckpointBytes checkpoint_bytes(const Executor& executor) {
  CheckpointBytes out;
  for (const StateTensor& tensor : executor.layout().tensors()) {
    if (!rules_of(tensor.role).checkpointed) continue;
    const auto bytes = static_cast<double>(tensor.spec.bytes());
    const ByteRange own = executor.writable_range(tensor.name, tensor.spec.dtype)
                              .value_or(ByteRange{0, tensor.spec.bytes()});
    const auto stored = static_cast<double>(own.end - own.begin);
    out.all += bytes;
    out.stored += stored;
    if (stored < bytes) out.parts += bytes;
  }
  return out;
}

}  // namespace

void print_checkpoint(const Session& session, const StorageRates& rates, double link) {
  const CheckpointBytes bytes = checkpoint_bytes(*session.executor);
  const bool shared = session.shares_state();
  const int world = session.options.ranks.world, writers = shared ? world : 1;
  const int per_node = session.options.ranks.ranks_per_node;
  const int nodes = per_node > 0 ? (world + per_node - 1) / per_node : 1;
  const double save = bytes.all / rates.disk;
  // The ranks of a node share its page cache; a rank hashes a share of the bytes, which may not be
  // those that it stores.
  const double read = std::min(bytes.stored * world, bytes.all * nodes) +
                      (nodes > 1 && bytes.stored < bytes.all ? bytes.all : 0);
  const double copied = static_cast<double>(snapshot_bytes(*session.executor, writers));
  const double gathered = bytes.parts * (world - 1) / world;
  const bool async = session.experiment->checkpoint.async;
  const double stall = gathered / link + (async ? copied / rates.copy : save);
  fmt::print("checkpoint: {:.4g} MB, written by {} rank{}\n", bytes.all / 1e6, writers,
             writers == 1 ? "" : "s");
  fmt::print(
      "  estimate at {:.3g} GB/s of the disk ({}): {:.3g} s to save, {:.3g} s to load; training "
      "waits "
      "{:.3g} s for each ({})\n",
      rates.disk / 1e9,
      rates.disk_given ? "--disk" : "assumed; bench_checkpoint measures it, --disk sets it", save,
      read / rates.disk, stall,
      async ? fmt::format("a copy in memory, assumed at {:.3g} GB/s", rates.copy / 1e9)
            : "checkpoint.async: false");
  if (save > rates.grace) {
    fmt::print(
        "warning: a checkpoint takes {:.3g} s to save, longer than the {:.3g} s from SIGTERM to "
        "SIGKILL (--grace): a job that is stopped loses the steps since its last checkpoint\n",
        save, rates.grace);
  }
}

}  // namespace dltrain
