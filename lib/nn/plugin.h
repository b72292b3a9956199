// Plug-ins: layers, losses, ops and kernels that are built outside of this program, against its
// installed headers (find_package(dltrain)), into a shared object that an experiment names:
//
//   plugins: libsnake.so
//
// A plug-in defines one Plugin and exports it with the macro below; examples/custom-op/ is a
// complete one. It finds the functions of these headers in the program that loads it, and fmt in a
// library of its own.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "nn/layer.h"
#include "nn/loss.h"
#include "nn/plugin_abi.h"
#include "ops/kernel.h"
#include "ops/op.h"

namespace dltrain {

// The texts, ops and rows stay where they are until the process ends.
struct Plugin {
  std::span<const OpDef> ops = {};
  // Tried before the engine's own kernels, so they may also replace those of an existing op. The
  // reference engine computes in f64 for `dltrain check` and tests.
  std::span<const KernelRow> cpu_kernels = {}, cuda_kernels = {}, reference_kernels = {};
  std::vector<KindRow<Layer>> layers = {};
  std::vector<KindRow<Loss>> losses = {};
};

// Exports `plugin`, a function that returns a const Plugin&.
#define DLTRAIN_PLUGIN(plugin)                                                                \
  extern "C" {                                                                                \
  __attribute__((visibility("default"))) extern const unsigned long long dltrain_plugin_abi = \
      DLTRAIN_PLUGIN_ABI;                                                                     \
  __attribute__((visibility("default"))) const dltrain::Plugin* dltrain_plugin() {            \
    return &plugin();                                                                         \
  }                                                                                           \
  }

// Loads a plug-in into this process. Throws Error(usage) if the file is no plug-in, was built with
// other headers than this program, or has a name that exists. A plug-in is known by its file name:
// one of that name is loaded once, so that the configuration of an older run may name another path.
void load_plugin(const std::string& path);
bool is_loaded_plugin(const std::string& path);
// From now on load_plugin() does nothing: `plugins: []` was given where a run may name some.
void refuse_plugins();

}  // namespace dltrain
