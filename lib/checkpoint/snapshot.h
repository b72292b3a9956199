// A copy of the checkpointed state, which is written while training continues.
#pragma once

#include <string>
#include <vector>

#include "runtime/executor.h"
#include "tensor/safetensors.h"

namespace dltrain {

// One tensor of the checkpointed state, in host memory or read when it is written.
struct TensorCopy {
  std::string name;   // in files: averages have the names of what they average
  std::string state;  // in the executor
  TensorSpec spec;    // in memory
  Role role = Role::parameter;
  const ParameterInfo* info = nullptr;  // how files keep it; nullptr: as memory does
  Executor* live = nullptr;             // nullptr: bytes holds it
  std::vector<std::byte> bytes;
  int owner = 0;  // the rank that writes it; others have no bytes
};
using StateSnapshot = std::vector<TensorCopy>;

// Copies the checkpointed state and reuses the snapshot's memory. The executor must outlive the
// snapshot. `live`: only sharded tensors are copied; the others are read when the snapshot is
// written, and no step may run until then. `rank` of `writers`: the tensors are distributed over
// the writers by size, those of a stage of a pipeline over its ranks (`writers` is then the number
// of all ranks). With sharded tensors all ranks must call this.
void take_snapshot(Executor& executor, StateSnapshot& snapshot, bool live = false, int rank = 0,
                   int writers = 1);
// The greatest number of bytes that a rank copies.
size_t snapshot_bytes(const Executor& executor, int writers = 1);

// Writes the tensors of the given roles and owner under their state names, their axes in the order
// of files.
void save_tensors(const StateSnapshot& snapshot, FileWriter& file, const std::vector<Role>& roles,
                  int owner);

// The name of a state tensor in files, and the order of its axes there.
struct StateInFiles {
  std::string name;
  const ParameterInfo* info = nullptr;  // nullptr: the order of memory
  Shape shape;
};
StateInFiles in_files(const Executor& executor, const StateTensor& tensor);

bool is_one_of(Role role, const std::vector<Role>& roles);

}  // namespace dltrain
