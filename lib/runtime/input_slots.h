// The transfer of batches from the host to the input slots of a program.
//
// If the device uses host memory, fields are copied to their places. Otherwise two stages in device
// memory are filled in turn by a separate stream: a batch is transferred while the kernels of the
// previous one run, and is then copied on the device to the program's inputs, in the order of the
// computation. StepInputs are transferred with it, from pinned memory.
//
// Threads: used by one thread.
#pragma once

#include <array>
#include <memory>
#include <span>

#include "device/device.h"
#include "ops/step_state.h"

namespace dltrain {

// The addresses of a batch's fields in host memory.
using FieldSpan = std::span<const std::byte* const>;

// The place of a field on the device.
struct InputBuffer {
  std::byte* address = nullptr;
  size_t bytes = 0;
};

class InputSlots {
 public:
  // The bytes of the stages for batches of up to `batch_bytes`; 0 for devices that use host memory.
  static size_t stage_bytes(const Device& device, size_t batch_bytes, size_t fields);

  // `stages`: memory of stage_bytes() on the device. `device_inputs`: the place of StepInputs.
  InputSlots(Device& device, std::byte* stages, size_t stage_bytes, std::byte* device_inputs);
  ~InputSlots();

  // Queues the copies of a batch in the order of `stream`. The fields must not change until the
  // next call has returned; `inputs` are copied by the call.
  void fill(std::span<const InputBuffer> buffers, FieldSpan fields, const StepInputs& inputs,
            Stream& stream);

 private:
  struct Stage {
    std::byte* data = nullptr;             // device memory
    StepInputs* inputs = nullptr;          // pinned
    std::unique_ptr<Event> filled, freed;  // by the copies to it and from it
  };

  Device& device_;
  std::byte* device_inputs_;
  Buffer pinned_;
  std::unique_ptr<Stream> copies_;
  std::array<Stage, 2> stages_;
  size_t next_ = 0;
};

}  // namespace dltrain
