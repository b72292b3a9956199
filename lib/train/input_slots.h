// The way of batches from the host to the input slots of a plan.
//
// Where the device's memory is the host's, fields are copied to their places. Otherwise there are
// two stages in device memory, filled in turn by a stream of their own: a batch crosses the bus
// while the kernels of the one before it run, and is then copied on the device to where the plan
// reads it, in the order of the computation. StepInputs travel with it, from pinned memory.
//
// Threads: used by one thread.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "ops/step_state.h"

namespace dltrain {

// The addresses of a batch's fields in host memory.
using FieldSpan = std::span<const std::byte* const>;

// Where a field goes on the device.
struct InputPlace {
  std::byte* address = nullptr;
  size_t bytes = 0;
};

class InputSlots {
 public:
  // Of the stages that a device of its own memory needs for batches of up to `batch_bytes`; 0 for
  // others.
  static size_t stage_bytes(const Device& device, size_t batch_bytes, size_t fields);

  // `stages`: memory of stage_bytes() on the device. `device_inputs`: where StepInputs go.
  InputSlots(Device& device, std::byte* stages, size_t stage_bytes, std::byte* device_inputs);
  ~InputSlots();

  // Queues the copies of a batch in the order of `stream`. The fields must stay as they are until
  // the next call has returned; `inputs` are taken at the call.
  void fill(std::span<const InputPlace> places, FieldSpan fields, const StepInputs& inputs,
            Stream& stream);

 private:
  struct Stage {
    std::byte* data = nullptr;             // device memory
    StepInputs* inputs = nullptr;          // pinned
    std::unique_ptr<Event> filled, freed;  // by the copies to it and from it
  };

  void fill_directly(std::span<const InputPlace> places, FieldSpan fields, const StepInputs& inputs,
                     Stream& stream);

  Device& device_;
  std::byte* device_inputs_;
  Buffer pinned_;
  std::unique_ptr<Stream> copies_;
  std::array<Stage, 2> stages_;
  size_t next_ = 0;
};

}  // namespace dltrain
