#include "runtime/input_slots.h"

#include "base/error.h"
#include "graph/memory_planner.h"

namespace dltrain {

size_t InputSlots::stage_bytes(const Device& device, size_t batch_bytes, size_t fields) {
  if (device.properties().on_host) return 0;
  // Each field is aligned.
  return 2 * align_up(align_up(sizeof(StepInputs)) + batch_bytes + fields * kMemoryAlignment);
}

InputSlots::InputSlots(Device& device, std::byte* stages, size_t stage_bytes,
                       std::byte* device_inputs)
    : device_(device), device_inputs_(device_inputs) {
  if (stage_bytes == 0) return;
  copies_ = device.make_stream();
  pinned_ = Buffer(device, 2 * align_up(sizeof(StepInputs)), Memory::pinned_host);
  for (size_t i = 0; i < stages_.size(); ++i) {
    stages_[i] = {
        .data = stages + i * (stage_bytes / 2),
        .inputs = reinterpret_cast<StepInputs*>(pinned_.data() + i * align_up(sizeof(StepInputs))),
        .filled = device.make_event(),
        .freed = device.make_event()};
  }
}

InputSlots::~InputSlots() {
  try {
    if (copies_) copies_->synchronize();
  } catch (const Error&) {  // the device has failed, which was reported before
  }
}

void InputSlots::fill(std::span<const InputBuffer> buffers, FieldSpan fields,
                      const StepInputs& inputs, Stream& stream) {
  check_internal(fields.size() == buffers.size(), "a batch of {} fields for {} slots",
                 fields.size(), buffers.size());
  if (!copies_) {
    for (size_t i = 0; i < fields.size(); ++i) {
      device_.copy(buffers[i].address, fields[i], buffers[i].bytes, stream);
    }
    device_.copy(device_inputs_, &inputs, sizeof inputs, stream);
    return;
  }
  Stage& stage = stages_[next_];
  next_ = (next_ + 1) % stages_.size();
  Stage& before = stages_[next_];
  stage.freed->make_wait(*copies_);
  *stage.inputs = inputs;
  device_.copy(stage.data, stage.inputs, sizeof inputs, *copies_);
  std::byte* at = stage.data + align_up(sizeof inputs);
  for (size_t i = 0; i < fields.size(); ++i) {
    device_.copy(at, fields[i], buffers[i].bytes, *copies_);
    at += align_up(buffers[i].bytes);
  }
  stage.filled->record(*copies_);
  stage.filled->make_wait(stream);
  device_.copy(device_inputs_, stage.data, sizeof inputs, stream);
  at = stage.data + align_up(sizeof inputs);
  for (const InputBuffer& buffer : buffers) {
    device_.copy(buffer.address, at, buffer.bytes, stream);
    at += align_up(buffer.bytes);
  }
  stage.freed->record(stream);
  // Waits until the previous batch has left host memory, which is usually the case already.
  before.filled->synchronize();
}

}  // namespace dltrain
