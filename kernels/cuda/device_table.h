// A table of values in device memory for kernels.
#pragma once

#include <vector>

#include "device/device.h"

namespace dltrain {

template <typename T>
class DeviceTable {
 public:
  explicit DeviceTable(Device& device) : device_(device) {}

  // Copies the values and waits: for bind(), which is outside the step. Returns nullptr when there
  // are none. The address stays the same unless the number of values grows.
  const T* upload(const std::vector<T>& values) {
    if (values.empty()) return nullptr;
    const size_t bytes = values.size() * sizeof(T);
    if (memory_.bytes() < bytes) memory_ = Buffer(device_, bytes);
    const auto stream = device_.make_stream();
    device_.copy(memory_.data(), values.data(), bytes, *stream);
    stream->synchronize();
    return reinterpret_cast<const T*>(memory_.data());
  }

 private:
  Device& device_;
  Buffer memory_;
};

}  // namespace dltrain
