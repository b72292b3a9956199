// Who wants to know where a rank stands in the sequence of its collective operations.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "comm/call_numbers.h"
#include "device/collectives.h"
#include "tensor/dtype.h"

namespace dltrain {

// A message to or from a rank (its place among all), counted in one direction between two ranks of
// a group, so that both count alike. No peer: there is none; number 0: not known.
struct ObservedMessage {
  int peer = -1;
  uint64_t number = 0;
};

// One operation of a group, as it is issued. All ranks of a group count the same collectives, so
// `number` says who is behind.
struct ObservedOperation {
  const char* name = "";  // "all_reduce"
  size_t count = 0;
  DType dtype = DType::u8;
  uint64_t number = 0;           // of collectives; 0: a message, or not known
  ObservedMessage to{}, from{};  // of a message, both of an exchange
  int64_t step = -1;             // that it belongs to, where the observer says so
  CallSubject about = nullptr;
};

// `name_of(rank)`: what a rank of the group is called among all.
template <typename NameOf>
ObservedOperation observed_operation(const CollectiveCall& call, const CallNumbers& numbers,
                                     const NameOf& name_of) {
  ObservedOperation out{.name = collective_name(call),
                        .count = std::max(call.count, call.received),
                        .dtype = call.dtype,
                        .number = numbers.collective,
                        .about = call.about};
  if (call.sends()) out.to = {name_of(call.to), numbers.sent};
  if (call.receives()) out.from = {name_of(call.from), numbers.received};
  return out;
}

// Calls come from the thread that issues and waits, but for on_device and device_done.
// Implementations must be quick and allocate nothing, but for the first message of two ranks.
class CollectiveObserver {
 public:
  virtual ~CollectiveObserver() = default;
  // This rank is in a group of these ranks, whose number is new; group 0 has all and need not be
  // told.
  virtual void joined(int group, std::span<const int> ranks) = 0;
  virtual void issued(int group, const ObservedOperation& operation) = 0;
  // The thread is about to wait for an operation, and has come back.
  virtual void waiting(int group, const ObservedOperation& operation) = 0;
  virtual void done_waiting() = 0;
  // Of groups whose operations a device does by itself, a moment later: the device has come to an
  // operation and is in it; it is done with one, so that it is in none of those.
  virtual void on_device(int group, const ObservedOperation& operation) = 0;
  virtual void device_done(int group, const ObservedOperation& operation) = 0;
  // The step at work on, counted from 0; −1: none.
  virtual int64_t step() = 0;
  // As it is told of: "all_reduce of 1000 f32 (gradient.h.0.mlp.weight)".
  virtual std::string describe(const ObservedOperation& operation) = 0;
  // An operation has failed for this reason: the sentence to tell instead. `certain`: this rank
  // knows the cause at first hand, and nobody need be waited for who knows more.
  virtual std::string explain(const std::string& reason, bool certain) = 0;
};

}  // namespace dltrain
