// The ops of the update segment (lib/ops/update.cpp): one launch serves all tensors of an op. A
// table in device memory, built for the addresses of a call, divides them into chunks of fixed
// size, one block each.
#pragma once

#include <algorithm>
#include <vector>

#include "cuda/device_table.h"
#include "cuda/launch.h"
#include "ops/kernel.h"
#include "ops/rules.h"
#include "ops/step_state.h"
#include "ops/update.h"
#include "shared/update_groups.h"

namespace dltrain {

inline constexpr int64_t kUpdateChunk = 8192;  // elements

// Up to kUpdateChunk elements of one tensor of every role: parameter, gradient, moments, and scales
// of moments in 8 bits, one a block.
struct UpdateChunk {
  void* role[6];
  int64_t count;
  int64_t tensor;       // index of the tensor in the op
  void* copy;           // low-precision copy of the parameters, or nullptr
  int64_t first;        // element of the tensor at which it begins
  uint64_t stream;      // of the rounding, with UpdateTable::rounds
  GroupSettings group;  // of that tensor
};

struct UpdateTable {
  const UpdateChunk* chunks = nullptr;  // device memory
  int64_t count = 0;
  DType dtype = DType::f32;  // of every tensor (of the parameters, for copies): f32 or f64
  DType copy = DType::bf16;  // of UpdateChunk::copy: bf16 or f16
  // Parameters (role 0) are bf16 with stochastic rounding; the other roles are f32.
  bool rounds = false;
};

// The chunks of inputs [first, first + roles · tensors) of the request, role by role, and of the
// copies if the update has the attribute `copies`.
class ChunkTable {
 public:
  ChunkTable(const KernelRequest& request, size_t first, size_t roles)
      : device_(&request.device),
        first_(first),
        copies_(first_copy(request.attributes, request.inputs.size())),
        rounding_(request.attributes) {
    const size_t end = copies_ != 0 ? copies_ : request.inputs.size();
    const size_t tensors = (end - first) / roles;
    for (size_t i = end; i < request.inputs.size(); ++i) {
      if (!is_absent(request.inputs[i])) table_.copy = request.inputs[i].dtype;
    }
    for (size_t role = 0; role < roles; ++role) {
      const DType dtype = tensors > 0 ? request.inputs[first + role * tensors].dtype : DType::f32;
      const bool scales = request.attributes.has("block") && role >= 2 + (roles - 2) / 2;
      chunk_bytes_.push_back(dtype_size(dtype) * kUpdateChunk / (scales ? kMomentBlock : 1));
    }
    for (size_t i = 0; i < tensors; ++i) {
      counts_.push_back(request.inputs[first + i].shape.elements());
      table_.count += chunks_of(i);
    }
    table_.rounds = rounding_.any();
    table_.dtype = tensors > 0 && !table_.rounds ? request.inputs[first].dtype : DType::f32;
  }

  int64_t chunks() const { return table_.count; }
  size_t tensors() const { return counts_.size(); }
  // Returns the number of chunks of a tensor; the table is ordered by tensor.
  int64_t chunks_of(size_t tensor) const { return divide_up(counts_[tensor], kUpdateChunk); }

  // The table for the addresses of a call.
  struct Bound {
    UpdateTable table;
    DeviceTable<UpdateChunk> memory;
  };
  Bound bound(const Bindings& bindings, const UpdateGroups* groups = nullptr) const {
    std::vector<UpdateChunk> chunks;
    for (size_t tensor = 0; tensor < counts_.size(); ++tensor) {
      for (int64_t from = 0; from < counts_[tensor]; from += kUpdateChunk) {
        UpdateChunk chunk{};
        for (size_t role = 0; role < chunk_bytes_.size(); ++role) {
          void* address = bindings.inputs[first_ + role * counts_.size() + tensor];
          chunk.role[role] = static_cast<std::byte*>(address) +
                             static_cast<size_t>(from / kUpdateChunk) * chunk_bytes_[role];
        }
        chunk.count = std::min(kUpdateChunk, counts_[tensor] - from);
        chunk.tensor = static_cast<int64_t>(tensor);
        chunk.first = from;
        if (table_.rounds) chunk.stream = rounding_.stream(tensor);
        if (copies_ != 0 && bindings.inputs[copies_ + tensor] != nullptr) {
          chunk.copy = static_cast<std::byte*>(bindings.inputs[copies_ + tensor]) + 2 * from;
        }
        if (groups != nullptr) chunk.group = groups->of(tensor);
        chunks.push_back(chunk);
      }
    }
    Bound out{table_, {*device_, chunks}};
    out.table.chunks = out.memory.data();
    return out;
  }

 private:
  Device* device_;
  size_t first_, copies_;  // among the inputs; no copies: 0
  UpdateRounding rounding_;
  std::vector<size_t> chunk_bytes_;  // of each role
  std::vector<int64_t> counts_;
  UpdateTable table_;  // without addresses
};

// Returns true if all tensors after the state have one dtype, f32 or f64, except copies, and
// parameters with stochastic rounding, with which the others are f32.
inline bool is_wide_update(const KernelRequest& request) {
  const size_t copies = first_copy(request.attributes, request.inputs.size());
  SpecSpan tensors = copies == 0 ? request.inputs : request.inputs.first(copies);
  const bool narrow = UpdateRounding(request.attributes).any();
  if (narrow)
    tensors = tensors.subspan(static_cast<size_t>(request.attributes.integer("count", 1)));
  const DType dtype = tensors.size() > 1 ? tensors[1].dtype : DType::f32;
  return (!narrow || dtype == DType::f32) && (dtype == DType::f32 || dtype == DType::f64) &&
         std::all_of(tensors.begin() + 1, tensors.end(), [&](const TensorSpec& spec) {
           const bool codes = request.attributes.has("block") && spec.dtype == DType::u8;
           return spec.dtype == dtype || is_absent(spec) || codes;
         });
}

}  // namespace dltrain
