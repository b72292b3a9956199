// The state of programs by name: the parameters, moments, sums and caches that a layout places in
// one region of device memory.
//
// Threads: used by one thread.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/verified_files.h"
#include "device/device.h"
#include "graph/frame.h"
#include "graph/state_layout.h"
#include "nn/parameters.h"

namespace dltrain {

class StateStore {
 public:
  virtual ~StateStore() = default;
  // The parameters and buffers, which files can be loaded into.
  virtual const std::vector<ParameterInfo>& weights() const = 0;
  const StateLayout& layout() const { return layout_; }
  // The device address of a state, or nullptr if there is none of that name. For programs that read
  // the state of others.
  std::byte* find_state(std::string_view name) const;

  // State by name, in memory order (see ParameterInfo::file for the order in files). Sizes must
  // agree, but that a parameter in bf16 may be given in f32 and is rounded to nearest. Writing a
  // parameter refreshes its low-precision copy too. Of a sharded tensor, the own shard is
  // written; it cannot be read so.
  virtual void write_state(std::string_view name, std::span<const std::byte> bytes);
  // The bytes of a tensor in memory that write_range() needs; nothing if this one can only be
  // written whole, or is held in another dtype.
  std::optional<ByteRange> writable_range(std::string_view name, DType dtype) const;
  // Writes bytes of a tensor from `begin` on, complete elements, in any order.
  void write_range(std::string_view name, uint64_t begin, std::span<const std::byte> bytes);
  void read_state(std::string_view name, std::span<std::byte> bytes);
  // The state of the roles that checkpoints hold, one tensor after the other. No tensor may be
  // sharded.
  std::vector<std::byte> read_checkpointed();
  // An f32 or bf16 tensor as f32.
  std::vector<float> read_floats(std::string_view name);
  // The content of a state tensor, of a sharded one the own shard: in the device's own memory where
  // that is the host's (valid until the next step), otherwise read into `buffer`.
  std::span<const std::byte> view_state(std::string_view name, std::vector<std::byte>& buffer);

 protected:
  // `memory` has layout().bytes(). All outlive the store.
  void place_state(Device& device, Stream& stream, std::byte* memory);
  std::byte* state_address(std::string_view name) const;
  // For frames of programs with this state.
  virtual StateAddress state_addresses() const;
  // Waits for the stream.
  virtual void wait_for_device();
  // The low-precision copy of a parameter, or nullptr.
  const StateTensor* copy_of(const StateTensor& tensor) const;
  // Rounds f32 bytes of a parameter, from `begin` on, to its copy.
  void refresh_copy(const StateTensor& copy, uint64_t begin, std::span<const std::byte> bytes);

  StateLayout layout_;

 private:
  Device* device_ = nullptr;
  Stream* stream_ = nullptr;
  std::byte* memory_ = nullptr;
};

}  // namespace dltrain
