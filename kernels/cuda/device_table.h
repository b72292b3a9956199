// A table of values in device memory for kernels.
#pragma once

#include <vector>

#include "device/device.h"

namespace dltrain {

template <typename T>
class DeviceTable {
 public:
  // Copies the values and waits: for Kernel::prepare, which is outside the step.
  DeviceTable(Device& device, const std::vector<T>& values) {
    if (values.empty()) return;
    const size_t bytes = values.size() * sizeof(T);
    memory_ = Buffer(device, bytes);
    const auto stream = device.make_stream();
    device.copy(memory_.data(), values.data(), bytes, *stream);
    stream->synchronize();
  }

  // nullptr: no values.
  const T* data() const { return reinterpret_cast<const T*>(memory_.data()); }

 private:
  Buffer memory_;
};

}  // namespace dltrain
