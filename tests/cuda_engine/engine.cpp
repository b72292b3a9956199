// The plug-in as it is built, on a machine without a GPU: what it exports and lists.
#include "device/engine.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>

#include <dlfcn.h>
#include <nlohmann/json.hpp>

#include "catch.h"
#include "ops/compare.h"
#include "ops/kernel.h"
#include "ops/op.h"

namespace dltrain {
namespace {

EngineEntry plugin_entry() {
  void* library = dlopen(DLTRAIN_CUDA_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  INFO((library == nullptr ? dlerror() : ""));
  REQUIRE(library != nullptr);
  return reinterpret_cast<EngineEntry>(dlsym(library, kEngineSymbol));
}

TEST_CASE("the CUDA plug-in answers for its own ABI only") {
  const EngineEntry entry = plugin_entry();
  REQUIRE(entry != nullptr);
  CHECK(entry(kEngineAbi + 1) == nullptr);
  const Engine* engine = entry(kEngineAbi);
  REQUIRE(engine != nullptr);
  CHECK(std::string(engine->name) == "cuda");
  CHECK(engine->libraries().starts_with("CUDA "));
  if (engine->device_count() == 0) CHECK_FALSE(engine->problem().empty());
}

// Returns {op: [kernels that a GPU has run]} of the newest record of scripts/gpu_check.py.
nlohmann::json proven_by_record() {
  std::filesystem::path newest;
  for (const auto& entry : std::filesystem::directory_iterator(DLTRAIN_SOURCE_DIR "/docs/gpu")) {
    if (entry.path().extension() == ".json") newest = std::max(newest, entry.path());
  }
  if (newest.empty()) return nlohmann::json::object();
  return nlohmann::json::parse(std::ifstream(newest)).at("proven");
}

TEST_CASE("the plug-in has the vendor's kernels for what costs most") {
  const Engine* engine = plugin_entry()(kEngineAbi);
  CHECK(describe_kernels(*engine, nullptr) ==
        std::vector<std::string>{"matmul: cuBLASLt", "conv2d: cuDNN", "attention: cuDNN",
                                 "fused_elementwise: NVRTC"});
}

TEST_CASE("the CUDA engine has a kernel for every op, and claims nothing that no GPU has run") {
  const Engine* engine = plugin_entry()(kEngineAbi);
  const nlohmann::json proven = proven_by_record();
  for (const OpDef& op : all_ops()) {
    INFO(op.name);
    CHECK(has_kernel(*engine, op.name));
  }
  for (size_t i = 0; i < engine->kernel_count; ++i) {
    INFO(engine->kernels[i].op << ", " << engine->kernels[i].variant);
    CHECK(find_op(engine->kernels[i].op) != nullptr);
    if (!engine->kernels[i].proven) continue;
    const nlohmann::json run = proven.value(engine->kernels[i].op, nlohmann::json::array());
    CHECK(std::ranges::find(run, nlohmann::json(engine->kernels[i].variant)) != run.end());
  }
}

}  // namespace
}  // namespace dltrain
