#include "runtime/state_store.h"

#include <algorithm>

#include "base/error.h"
#include "tensor/float_tensors.h"

namespace dltrain {
namespace {

// Returns whether this rank stores a box of a tensor, and not a range of its bytes.
bool is_cut(const StateTensor& tensor) {
  return tensor.shard && tensor.shard->cut;
}

// Returns the bytes of a tensor, or of its box, that this rank stores.
ByteRange stored_range(const StateTensor& tensor) {
  if (!tensor.shard) return {0, tensor.spec.bytes()};
  const size_t element = dtype_size(tensor.spec.dtype);
  const FlatCut::Range own = tensor.shard->range();
  const size_t begin = static_cast<size_t>(own.begin) * element;
  return {begin, begin + static_cast<size_t>(own.count) * element};
}

// Those of a frozen base are constants.
bool holds_weights(Role role) {
  return role == Role::parameter || role == Role::constant;
}

}  // namespace

void StateStore::place_state(Device& device, Stream& stream, std::byte* memory) {
  device_ = &device;
  stream_ = &stream;
  memory_ = memory;
}

std::byte* StateStore::find_state(std::string_view name) const {
  const StateTensor* tensor = layout_.find(name);
  return tensor == nullptr ? nullptr : memory_ + tensor->offset;
}

std::byte* StateStore::state_address(std::string_view name) const {
  std::byte* address = find_state(name);
  check_internal(address != nullptr, "no state is named {}", name);
  return address;
}

StateAddress StateStore::state_addresses() const {
  return [this](const GraphValue& value) { return memory_ + layout_.offset_of(value); };
}

void StateStore::write_state(std::string_view name, std::span<const std::byte> bytes) {
  const StateTensor* tensor = layout_.find(name);
  if (tensor != nullptr && holds_weights(tensor->role) && tensor->spec.dtype == DType::bf16 &&
      bytes.size() == 2 * tensor->spec.bytes()) {
    return write_state(name, bytes_as(floats_of(bytes, DType::f32), DType::bf16));
  }
  check_internal(tensor != nullptr && tensor->spec.bytes() == bytes.size(), "writing {}: {} bytes",
                 name, bytes.size());
  if (!is_cut(*tensor)) return write_range(name, 0, bytes);
  const Cut& cut = *tensor->shard->cut;
  std::vector<std::byte> local(tensor->shard->box().bytes());
  copy_from_cut(tensor->spec, cut, cut.rank, bytes, local);
  const ByteRange own = stored_range(*tensor);
  device_->copy(state_address(name), local.data() + own.begin, own.end - own.begin, *stream_);
  stream_->synchronize();
  if (const StateTensor* copy = copy_of(*tensor)) {
    write_state(copy->name, bytes_as(floats_of(bytes, DType::f32), copy->spec.dtype));
  }
}

const StateTensor* StateStore::copy_of(const StateTensor& tensor) const {
  return holds_weights(tensor.role) ? layout_.find(tensor.name, Role::low_precision) : nullptr;
}

std::optional<ByteRange> StateStore::writable_range(std::string_view name, DType dtype) const {
  const StateTensor* tensor = layout_.find(name);
  if (tensor == nullptr || tensor->spec.dtype != dtype || is_cut(*tensor)) return {};
  ByteRange out = stored_range(*tensor);
  const StateTensor* copy = copy_of(*tensor);
  if (copy == nullptr) return out;
  const size_t ratio = dtype_size(tensor->spec.dtype) / dtype_size(copy->spec.dtype);
  const ByteRange rounded = stored_range(*copy);
  return ByteRange{std::min(out.begin, rounded.begin * ratio),
                   std::max(out.end, rounded.end * ratio)};
}

void StateStore::write_range(std::string_view name, uint64_t begin,
                             std::span<const std::byte> bytes) {
  const StateTensor* tensor = layout_.find(name);
  check_internal(tensor != nullptr, "no state is named {}", name);
  const ByteRange own = stored_range(*tensor);
  const uint64_t from = std::max(begin, own.begin), to = std::min(begin + bytes.size(), own.end);
  if (from < to) {
    device_->copy(state_address(name) + (from - own.begin), bytes.data() + (from - begin),
                  to - from, *stream_);
    stream_->synchronize();
  }
  if (const StateTensor* copy = copy_of(*tensor)) refresh_copy(*copy, begin, bytes);
}

void StateStore::refresh_copy(const StateTensor& copy, uint64_t begin,
                              std::span<const std::byte> bytes) {
  // The elements that this rank stores, counted from the beginning of `bytes`.
  const ByteRange own = stored_range(copy);
  const size_t each = dtype_size(copy.spec.dtype);
  const uint64_t first = begin / sizeof(float), all = bytes.size() / sizeof(float);
  const uint64_t from = std::clamp(own.begin / each, first, first + all) - first;
  const uint64_t to = std::clamp(own.end / each, first, first + all) - first;
  constexpr uint64_t kAtOnce = uint64_t{1} << 20;  // no second copy of a large parameter in f32
  for (uint64_t at = from; at < to; at += kAtOnce) {
    const uint64_t count = std::min(kAtOnce, to - at);
    const auto part = bytes.subspan(at * sizeof(float), count * sizeof(float));
    write_range(copy.name, (first + at) * each,
                bytes_as(floats_of(part, DType::f32), copy.spec.dtype));
  }
}

void StateStore::read_state(std::string_view name, std::span<std::byte> bytes) {
  const StateTensor* tensor = layout_.find(name);
  check_internal(tensor != nullptr && !tensor->shard && tensor->spec.bytes() == bytes.size(),
                 "reading {}: {} bytes", name, bytes.size());
  device_->copy(bytes.data(), state_address(name), bytes.size(), *stream_);
  wait_for_device();
}

void StateStore::wait_for_device() {
  stream_->synchronize();
}

std::vector<float> StateStore::read_floats(std::string_view name) {
  const StateTensor* tensor = layout_.find(name);
  check_internal(tensor != nullptr, "no state is named {}", name);
  std::vector<std::byte> bytes(tensor->spec.bytes());
  read_state(name, bytes);
  return floats_of(bytes, tensor->spec.dtype);
}

std::span<const std::byte> StateStore::view_state(std::string_view name,
                                                  std::vector<std::byte>& buffer) {
  const StateTensor* tensor = layout_.find(name);
  check_internal(tensor != nullptr, "no state is named {}", name);
  const size_t bytes = tensor->stored().bytes();
  if (device_->properties().on_host) {
    stream_->synchronize();
    return {state_address(name), bytes};
  }
  buffer.resize(bytes);
  device_->copy(buffer.data(), state_address(name), bytes, *stream_);
  wait_for_device();
  return buffer;
}

std::vector<std::byte> StateStore::read_checkpointed() {
  std::vector<std::byte> out;
  for (const StateTensor& tensor : layout_.tensors()) {
    if (!rules_of(tensor.role).checkpointed) continue;
    const size_t begin = out.size();
    out.resize(begin + tensor.spec.bytes());
    read_state(tensor.name, std::span(out).subspan(begin));
  }
  return out;
}

}  // namespace dltrain
