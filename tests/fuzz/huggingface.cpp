// libFuzzer entry: any bytes as a config.json, and as an index of shards. Allowed: keys of the
// model section, which are then read as such; errors; Error(usage) of a text that is no JSON; an
// index whose shards are names of files in the folder, or Error(data).
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "config/bind.h"
#include "nn/huggingface/folder.h"
#include "nn/model.h"
#include "tensor/safetensors_set.h"

namespace {

using namespace dltrain;

void read_config(const std::string& text) {
  try {
    HuggingFaceConfig reading = read_huggingface_config("fuzz", text, "", {});
    if (!reading.errors.empty()) return;
    reading.model.set_text("type", reading.model.type);
    Diagnostics diagnostics;
    ModelConfig model;
    bind(model, reading.model.arguments, diagnostics);
    if (diagnostics.empty() && model.layers.empty()) std::abort();
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage) std::abort();
  }
}

void read_index(const std::string& text) {
  try {
    for (const auto& [tensor, shard] : parse_safetensors_index(text, "fuzz", ExitCode::data)) {
      if (std::filesystem::path(shard).filename() != shard) std::abort();
    }
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read_config(text);
  read_index(text);
  return 0;
}
