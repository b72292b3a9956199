#include "checkpoint/snapshot.h"

#include <algorithm>

#include "base/version.h"
#include "tensor/float_tensors.h"

namespace dltrain {
namespace {

// Assigns the tensor to the rank with the least bytes so far, of those of its stage: these are
// neighbours.
int assign_writer(std::vector<size_t>& assigned, const StateTensor& tensor, int stages) {
  const auto ranks = static_cast<ptrdiff_t>(assigned.size()) / stages;
  const ptrdiff_t first = tensor.shard ? tensor.shard->stage * ranks : 0;
  const auto begin = assigned.begin() + first;
  const auto least = std::min_element(begin, begin + ranks);
  *least += tensor.spec.bytes();
  return static_cast<int>(least - assigned.begin());
}
int stages_of(const Executor& executor) {
  return executor.mesh().size(mesh_axes::kPipeline);
}

}  // namespace

void take_snapshot(Executor& executor, StateSnapshot& snapshot, bool live, int rank, int writers) {
  size_t next = 0;
  std::vector<size_t> assigned(static_cast<size_t>(writers));  // bytes, by rank
  for (const StateTensor& tensor : executor.layout().tensors()) {
    if (!rules_of(tensor.role).checkpointed) continue;
    if (next == snapshot.size()) snapshot.emplace_back();
    TensorCopy& copy = snapshot[next++];
    const StateInFiles file = in_files(executor, tensor);
    copy.name = file.name;
    copy.state = tensor.name;
    copy.spec = tensor.spec;
    copy.role = tensor.role;
    copy.info = file.info;
    copy.owner = assign_writer(assigned, tensor, stages_of(executor));
    const bool own = copy.owner == rank;
    copy.live = own && live && !tensor.shard ? &executor : nullptr;
    if (!own || copy.live != nullptr) {
      copy.bytes = {};
      continue;
    }
    copy.bytes.resize(tensor.spec.bytes());
    if (!tensor.shard) executor.read_state(tensor.name, copy.bytes);
  }
  snapshot.resize(next);
  executor.collect_shards([&](const StateTensor& tensor, std::span<const std::byte> whole) {
    const auto copy = std::ranges::find(snapshot, tensor.name, &TensorCopy::state);
    if (copy->owner == rank) std::copy(whole.begin(), whole.end(), copy->bytes.begin());
  });
}

size_t snapshot_bytes(const Executor& executor, int writers) {
  std::vector<size_t> assigned(static_cast<size_t>(writers));
  for (const StateTensor& tensor : executor.layout().tensors()) {
    if (rules_of(tensor.role).checkpointed) assign_writer(assigned, tensor, stages_of(executor));
  }
  return *std::max_element(assigned.begin(), assigned.end());
}

void save_tensors(const StateSnapshot& snapshot, FileWriter& file, const std::vector<Role>& roles,
                  int owner) {
  std::vector<NamedTensor> names;
  for (const TensorCopy& copy : snapshot) {
    if (copy.owner != owner || !is_one_of(copy.role, roles)) continue;
    names.push_back(
        {copy.name, {copy.info ? copy.info->file.shape : copy.spec.shape, copy.spec.dtype}});
  }
  SafetensorsWriter writer(file, names, {{"format", "pt"}, {"dltrain", std::string(version())}});
  std::vector<std::byte> fresh;
  std::vector<float> wide, ordered;
  for (const TensorCopy& copy : snapshot) {
    if (copy.owner != owner || !is_one_of(copy.role, roles)) continue;
    const std::span<const std::byte> bytes =
        copy.live != nullptr ? copy.live->view_state(copy.state, fresh) : std::span(copy.bytes);
    if (copy.info == nullptr || copy.info->file.permutation.empty()) {
      writer.write(copy.name, bytes);
      continue;
    }
    // Allocated memory and state are aligned for any element.
    std::span memory(reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float));
    if (copy.spec.dtype == DType::bf16) {
      wide = floats_of(bytes, DType::bf16);
      memory = wide;
    }
    ordered.resize(memory.size());
    memory_to_file(*copy.info, memory, ordered);
    if (copy.spec.dtype == DType::bf16) {
      writer.write(copy.name, bytes_as(ordered, DType::bf16));
    } else {
      writer.write(copy.name, std::as_bytes(std::span(ordered)));
    }
  }
  writer.finish();
}

StateInFiles in_files(const Executor& executor, const StateTensor& tensor) {
  const std::vector<ParameterInfo>& all = executor.training().parameters;
  const auto info = std::ranges::find(all, tensor.owner, &ParameterInfo::name);
  StateInFiles out{.name = tensor.owner, .shape = tensor.spec.shape};
  // Averages have the names of their parameters, moments are called "momentum.layers.0.weight".
  if (tensor.role != Role::ema && !tensor.kind.empty()) {
    out.name = fmt::format("{}.{}", tensor.kind, tensor.owner);
  }
  // Averages and moments of a parameter's shape have its layout. Codes stay in the order of memory,
  // in which blocks of them have scales.
  if (info != all.end() && info->spec.shape == tensor.spec.shape &&
      is_floating(tensor.spec.dtype)) {
    out.info = &*info;
    out.shape = info->file.shape;
  }
  return out;
}

bool is_one_of(Role role, const std::vector<Role>& roles) {
  return std::find(roles.begin(), roles.end(), role) != roles.end();
}

}  // namespace dltrain
