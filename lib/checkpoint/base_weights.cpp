#include "checkpoint/base_weights.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "checkpoint/weights.h"
#include "config/paths.h"
#include "tensor/safetensors_set.h"

namespace dltrain {
namespace fs = std::filesystem;

bool has_base_elsewhere(const ModelConfig& model) {
  return model.lora && !model.lora->saves_base();
}

std::string fingerprint_of_weights(const fs::path& path) {
  Hasher hasher;
  if (fs::is_regular_file(path / kChecksumsFile)) {
    for (const auto& [name, digest] : read_checksums(path)) {
      if (!name.starts_with("model") && !name.starts_with("ema")) continue;
      hasher.update(std::as_bytes(std::span(digest.xxh3_128)));
    }
    return hasher.hex();
  }
  std::set<fs::path> files;
  const SafetensorsSet set(path, ExitCode::storage);
  for (const SafetensorsSet::Tensor& tensor : set.tensors()) files.insert(tensor.file->path());
  for (const fs::path& file : files) {
    const ByteRange all{0, fs::file_size(file)};
    VerifiedFiles(file.parent_path())
        .read(file.filename(), {&all, 1},
              [&](uint64_t, std::span<const std::byte> bytes) { hasher.update(bytes); });
  }
  return hasher.hex();
}

std::string sample_of_weights(const fs::path& path) {
  constexpr size_t kBytes = 1024;  // of a tensor
  Hasher hasher;
  const SafetensorsSet set(path, ExitCode::storage);
  for (const SafetensorsSet::Tensor& tensor : set.tensors()) {
    const std::span<const std::byte> data = tensor.file->data(*tensor.entry);
    const std::string head = fmt::format("{} {}\n", tensor.entry->name, data.size());
    hasher.update(std::as_bytes(std::span(head)));
    hasher.update(data.first(std::min(data.size(), kBytes)));
  }
  return hasher.hex();
}

void check_base(const ModelConfig& model, const CheckpointState& saved, const std::string& now) {
  if (saved.base == now) return;
  fail(ExitCode::storage,
       "the adapters were trained on {}, and {}; put the weights back, or name their place with -s "
       "model.init_from=PATH",
       saved.base.empty() ? "initial values" : "other weights (hash " + saved.base + ")",
       now.empty() ? "the configuration has no model.init_from"
                   : fmt::format("model.init_from {} has hash {}", *model.init_from, now));
}

void load_base(StateStore& store, ModelConfig& model, const CheckpointState& saved) {
  refuse_missing_paths(ObjectRef::of(model), ExitCode::storage);
  const fs::path from = model.init_from ? location_of_weights(*model.init_from) : fs::path();
  check_base(model, saved, model.init_from ? fingerprint_of_weights(from) : "");
  initialize_weights(store, static_cast<uint64_t>(saved.seed));
  if (model.init_from) load_weights(store, from, model.rename, model.strict);
}

}  // namespace dltrain
