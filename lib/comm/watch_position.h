// Where a rank stands, as its watch writes it to the store.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/observer.h"

namespace dltrain {

// An operation that is waited for, or that a device is in; group −1: none.
struct WatchWait {
  int group = -1;
  uint64_t number = 0;                 // of collectives
  ObservedMessage to = {}, from = {};  // of messages
  std::vector<int> members = {};       // of the group; empty: all ranks
  int64_t ms = 0;                      // so long
};

// So many messages have gone to a rank and come from it in a group; `done` of them are over on the
// device.
struct WatchMessages {
  int group = -1, peer = -1;
  uint64_t sent = 0, received = 0;
  uint64_t sent_done = 0, received_done = 0;
};

struct WatchPosition {
  uint64_t beat = 0;      // changes with every sign of life
  std::string name = {};  // "rank 2 (process 77 on host)"
  int64_t step = -1;      // at work on it, or the last one; −1: before the first
  int64_t steps_done = 0;
  int64_t busy_us = 0;                // in steps, without waiting for others
  std::vector<uint64_t> issued = {};  // collectives of each group
  WatchWait host = {};                // of the training thread
  bool finished = false;              // it ends as it should, there are no more signs of life
  std::string operation = {};         // the last one, in words; empty: none yet
  // Where its device does operations by itself: what it is in, how many of each group it is done
  // with, and the operation that it is in or was in last, in words, with its step.
  WatchWait device = {};
  std::vector<uint64_t> done = {};
  std::vector<WatchMessages> messages = {};
  std::string device_operation = {};
  int64_t device_step = -1;

  bool waits() const { return host.group >= 0 || device.group >= 0; }

  std::string to_text() const;
  // Nothing for a text that is none, or that names ranks which `size` ranks have not.
  static std::optional<WatchPosition> from_text(const std::string& text, int size);
};

}  // namespace dltrain
