#include "checkpoint/load_tensors.h"

#include <algorithm>
#include <map>

#include "tensor/float_tensors.h"

namespace dltrain {
namespace {

// Tensors in parts of which not all parts have been read.
struct Stack {
  std::vector<float> values;
  int64_t missing = 0;
};
using Stacks = std::map<std::string, Stack, std::less<>>;

// Returns the bytes of the file that are needed, and whether they are written as they come.
std::pair<ByteRange, bool> wanted_bytes(const StateStore& store, const FoundTensor& tensor,
                                        bool values) {
  const SafetensorsEntry& entry = *tensor.source.entry;
  const uint64_t begin = tensor.source.file->offset_of(entry);
  const bool as_in_memory = tensor.info == nullptr || tensor.info->file.permutation.empty();
  // Pieces are multiples of an element, so that no element is divided.
  const bool aligned = begin % dtype_size(entry.spec.dtype) == 0;
  if (as_in_memory && aligned && !values && tensor.part < 0) {
    if (const auto range = store.writable_range(tensor.name, entry.spec.dtype)) {
      return {{begin + range->begin, begin + range->end}, true};
    }
  }
  return {{begin, begin + entry.spec.bytes()}, false};
}

// Writes a tensor that was read in full.
void write_whole(StateStore& store, const FoundTensor& tensor, std::span<const std::byte> bytes,
                 std::vector<std::string>* not_finite, Stacks& stacks) {
  const DType dtype = tensor.source.entry->spec.dtype;
  if (tensor.info == nullptr) return store.write_state(tensor.name, bytes);
  const std::vector<float> values = floats_of(bytes, dtype);
  if (not_finite != nullptr && !all_finite(values)) not_finite->push_back(tensor.name);
  if (tensor.part < 0) return write_values(store, *tensor.info, tensor.name, values);
  const Shape& whole = tensor.info->file.shape;
  const auto [at, first] = stacks.try_emplace(tensor.name);
  Stack& stack = at->second;
  if (first) {
    stack = {std::vector<float>(static_cast<size_t>(whole.elements())),
             whole.elements() / static_cast<int64_t>(values.size())};
  }
  std::ranges::copy(
      values, stack.values.begin() + tensor.part * static_cast<std::ptrdiff_t>(values.size()));
  if (--stack.missing > 0) return;
  write_values(store, *tensor.info, tensor.name, stack.values);
  stacks.erase(at);
}

// Writes a weight that the store keeps in codes, unless another stage of a pipeline has it.
void write_codes(StateStore& store, const ParameterInfo& info, std::string_view name,
                 std::span<const float> memory) {
  const int64_t rows = info.spec.shape[0], columns = info.spec.shape[1];
  const auto parts = coded_parts(info.codes, rows, columns);
  const auto own = store.writable_range(state_name(parts[0].kind, name), parts[0].spec.dtype);
  if (!own || own->begin == own->end) return;
  const auto bytes = encode_weight(info.codes, rows, columns, memory);
  for (size_t i = 0; i < parts.size(); ++i) {
    store.write_state(state_name(parts[i].kind, name), bytes[i]);
  }
}

}  // namespace

void write_values(StateStore& store, const ParameterInfo& info, std::string_view name,
                  std::span<const float> file) {
  std::vector<float> moved;
  std::span<const float> memory = file;
  if (!info.file.permutation.empty()) {
    moved.resize(file.size());
    file_to_memory(info, file, moved);
    memory = moved;
  }
  if (info.codes.format != WeightFormat::wide) {
    write_codes(store, info, name, memory);
  } else if (info.spec.dtype == DType::f64) {
    const std::vector<double> wide(memory.begin(), memory.end());
    store.write_state(name, std::as_bytes(std::span(wide)));
  } else {
    store.write_state(name, std::as_bytes(memory));
  }
}

void load_tensors(StateStore& store, std::vector<FoundTensor> tensors, VerifiedFiles& files,
                  std::vector<std::string>* not_finite) {
  std::erase_if(tensors, [](const FoundTensor& t) { return t.source.entry->spec.bytes() == 0; });
  std::ranges::sort(tensors, {}, [](const FoundTensor& tensor) {
    return std::pair(tensor.source.file->path(), tensor.source.entry->begin);
  });
  Stacks stacks;
  struct Target {
    const FoundTensor* tensor;
    ByteRange range;
    bool direct;
  };
  for (auto at = tensors.begin(); at != tensors.end();) {
    const SafetensorsFile& file = *at->source.file;
    std::vector<Target> targets;
    std::vector<ByteRange> ranges;
    for (; at != tensors.end() && at->source.file == &file; ++at) {
      const auto [range, direct] = wanted_bytes(store, *at, not_finite != nullptr);
      if (range.begin == range.end) continue;
      targets.push_back({&*at, range, direct});
      ranges.push_back(range);
    }
    auto target = targets.begin();
    std::vector<std::byte> whole;
    files.read(file.path().filename(), ranges,
               [&](uint64_t offset, std::span<const std::byte> bytes) {
                 if (offset >= target->range.end) ++target;
                 const FoundTensor& tensor = *target->tensor;
                 if (target->direct) {
                   const uint64_t begin = file.offset_of(*tensor.source.entry);
                   return store.write_range(tensor.name, offset - begin, bytes);
                 }
                 whole.insert(whole.end(), bytes.begin(), bytes.end());
                 if (offset + bytes.size() < target->range.end) return;
                 write_whole(store, tensor, whole, not_finite, stacks);
                 whole.clear();
               });
  }
}

}  // namespace dltrain
