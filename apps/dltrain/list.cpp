// dltrain list [FAMILY]: the registries, so that nobody has to read the source for names.
#include "config/suggest.h"
#include "data/registry.h"
#include "data/transform.h"
#include "dltrain/commands.h"
#include "nn/model_files.h"
#include "ops/kernel.h"
#include "text/config.h"

namespace dltrain {
namespace {

template <typename Base>
void print_table(const std::string& title, const KindTable<Base>& table) {
  fmt::print("{}:\n", title);
  for (const KindRow<Base>& row : table.rows) fmt::print("  {:<16} {}\n", row.name, row.doc);
}

std::string kernels_of(const Engine& engine, std::string_view op) {
  std::string out;
  for (size_t i = 0; i < engine.kernel_count; ++i) {
    const KernelRow& row = engine.kernels[i];
    if (row.op != op) continue;
    if (!out.empty()) out += ", ";
    out += row.variant;
    if (!row.proven) out += " (unproven)";
  }
  return out.empty() ? "-" : out;
}

void list_models() {
  fmt::print("models:\n");
  for (const ModelFile& file : model_files()) {
    const ModelSummary summary = summarize(file);
    fmt::print("  {:<16} {}\n", file.name, summary.description);
    for (const auto& p : summary.parameters) {
      const std::string initial = p.initial.is_scalar() ? p.initial.text : "...";
      fmt::print("    {:<16} {}{} (default {})\n", p.name.text, p.doc,
                 p.choices.empty() ? "" : ": " + join_names(p.choices), initial);
    }
  }
}

void list_ops() {
  std::string why;
  const Engine* cuda = load_engine_plugin("cuda", why, Driver::not_needed);
  fmt::print("ops:\n  {:<32} {:<16} {:<24} {}\n", "name", "cpu", "cuda", "meaning");
  for (const OpDef& op : all_ops()) {
    fmt::print("  {:<32} {:<16} {:<24} {}\n", op.name, kernels_of(*engines().cpu, op.name),
               cuda != nullptr ? kernels_of(*cuda, op.name) : "not loaded", op.doc);
  }
  if (cuda == nullptr) fmt::print("  cuda: {}\n", why);
}

void list_devices() {
  fmt::print("devices:\n");
  const auto show = [](const Engine& engine, int index) {
    const bool gpu = std::string_view(engine.name) == "cuda";
    const std::string place = gpu ? fmt::format("cuda:{}", index) : engine.name;
    try {
      const DeviceProperties p = engine.open(index)->properties();
      fmt::print("  {:<8} {} ({}), {} {}, {} MiB of {} MiB free; {}\n", place, p.name,
                 p.architecture, p.processors, gpu ? "multiprocessors" : "cores",
                 p.free_memory >> 20, p.total_memory >> 20, p.libraries);
    } catch (const Error& error) {
      if (!gpu) throw;
      fmt::print("  {:<8} cannot be used: {}\n", place, error.what());
    }
  };
  show(*engines().cpu, 0);
  std::string why;
  const Engine* cuda = load_engine_plugin("cuda", why);
  for (int i = 0; cuda != nullptr && i < cuda->device_count(); ++i) show(*cuda, i);
  if (cuda == nullptr) fmt::print("  cuda: {}\n", why);
}

struct Family {
  const char* name;
  void (*print)();
};
constexpr Family kFamilies[] = {
    {"models", list_models},
    {"layers", [] { print_table("layers", layer_table()); }},
    {"initializers", [] { print_table("initializers", initializer_table()); }},
    {"losses", [] { print_table("losses", loss_table()); }},
    {"optimizers", [] { print_table("optimizers", optimizer_table()); }},
    {"schedules", [] { print_table("schedules", schedule_table()); }},
    {"datasets", [] { print_table("datasets", dataset_table()); }},
    {"tokenizers", [] { print_table("tokenizers", tokenizer_table()); }},
    {"transforms", [] { print_table("transforms", transform_table()); }},
    {"ops", list_ops},
    {"devices", list_devices},
};

}  // namespace

CommandBody add_list(CLI::App& command) {
  auto family = std::make_shared<std::string>();
  std::vector<std::string> names;
  for (const Family& row : kFamilies) names.push_back(row.name);
  command.add_option("FAMILY", *family, "What to list; all without it")
      ->check(CLI::IsMember(names));
  return [family] {
    for (const Family& row : kFamilies) {
      if (family->empty() || *family == row.name) row.print();
    }
    return ExitCode::ok;
  };
}

}  // namespace dltrain
