#include "nn/plugin.h"

#include <algorithm>
#include <filesystem>

#include <dlfcn.h>

namespace dltrain {
namespace {

std::string file_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

template <typename T>
T* symbol(void* library, const char* name) {
  return reinterpret_cast<T*>(dlsym(library, name));
}

const Plugin& open_shared_object(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const std::string text = dlerror();
    fail(ExitCode::usage, "cannot load the plug-in: {}", text.substr(0, text.find('\n')));
  }
  const auto* abi = symbol<const unsigned long long>(library, "dltrain_plugin_abi");
  auto* const plugin = symbol<const Plugin*()>(library, "dltrain_plugin");
  if (abi == nullptr || plugin == nullptr) {
    fail(ExitCode::usage,
         "{} is not a plug-in of dltrain, which DLTRAIN_PLUGIN makes (nn/plugin.h)", path);
  }
  if (*abi != DLTRAIN_PLUGIN_ABI) {
    fail(ExitCode::usage,
         "{} was built with the headers of another version of dltrain; build it again with those "
         "of this program",
         path);
  }
  return *plugin();
}

// Refuses names that exist, before anything is added.
void refuse_known_name(const std::string& path, std::string_view family, std::string_view name,
                       bool known) {
  if (!known) return;
  fail(ExitCode::usage, "the {} '{}' of the plug-in {} exists already; give it another name",
       family, name, path);
}

template <typename Base>
void check_rows(const std::string& path, const KindTable<Base>& table,
                const std::vector<KindRow<Base>>& rows) {
  for (const KindRow<Base>& row : rows) {
    refuse_known_name(path, table.name, row.name,
                      table.ref().index(row.name) != KindTableRef::npos);
    if (row.make == nullptr || row.make() == nullptr) {
      fail(ExitCode::usage, "the {} '{}' of the plug-in {} cannot be made", table.name, row.name,
           path);
    }
  }
}

void check_kernels(const std::string& path, const Plugin& plugin) {
  for (const auto& rows : {plugin.cpu_kernels, plugin.cuda_kernels, plugin.reference_kernels}) {
    for (const KernelRow& row : rows) {
      const bool own = std::ranges::find(plugin.ops, row.op, &OpDef::name) != plugin.ops.end();
      if (row.make != nullptr && (own || find_op(row.op) != nullptr)) continue;
      fail(ExitCode::usage, "the plug-in {} has a kernel for {}, {}", path, row.op,
           row.make == nullptr ? "without a maker" : "which is no op");
    }
  }
}

template <typename Base>
void add_rows(KindTable<Base>& table, const std::vector<KindRow<Base>>& rows) {
  table.rows.insert(table.rows.end(), rows.begin(), rows.end());
}

std::vector<std::string>& loaded_plugins() {
  static std::vector<std::string> names;
  return names;
}
bool plugins_refused = false;

}  // namespace

void refuse_plugins() {
  plugins_refused = true;
}

bool is_loaded_plugin(const std::string& path) {
  return plugins_refused ||
         std::ranges::find(loaded_plugins(), file_name(path)) != loaded_plugins().end();
}

void load_plugin(const std::string& path) {
  if (is_loaded_plugin(path)) return;
  // dlopen would search a name without a folder in the system's.
  const std::string absolute = std::filesystem::absolute(path);
  const Plugin& plugin = open_shared_object(absolute);
  for (const OpDef& op : plugin.ops) {
    refuse_known_name(path, "op", op.name, find_op(op.name) != nullptr);
  }
  check_rows(path, layer_table(), plugin.layers);
  check_rows(path, loss_table(), plugin.losses);
  check_kernels(path, plugin);
  add_ops(plugin.ops);
  add_kernels("cpu", plugin.cpu_kernels);
  add_kernels("cuda", plugin.cuda_kernels);
  add_kernels("reference", plugin.reference_kernels);
  add_rows(layer_table(), plugin.layers);
  add_rows(loss_table(), plugin.losses);
  loaded_plugins().push_back(file_name(path));
}

}  // namespace dltrain
