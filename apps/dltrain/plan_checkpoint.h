// The checkpoints of a run in `dltrain plan`: size, and estimated times.
#pragma once

#include "run/session.h"

namespace dltrain {

struct StorageRates {
  double disk = 1e9;  // bytes per second of the checkpoints' file system, of all ranks together
  double copy = 5e9;  // bytes per second of a rank from the device to host memory
  double grace = 30;  // s between a scheduler's SIGTERM and SIGKILL
  bool disk_given = false;  // else it is an assumption
};

// `link`: bytes per second that a rank sends to others.
void print_checkpoint(const Session& session, const StorageRates& rates, double link);

}  // namespace dltrain
