// dltrain list [FAMILY]: the registries, so that nobody has to read the source for names.
#include <algorithm>
#include <array>

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
  size_t width = 16;
  for (const KindRow<Base>& row : table.rows) width = std::max(width, row.name.size());
  for (const KindRow<Base>& row : table.rows) {
    fmt::print("  {:<{}} {}\n", row.name, width, row.doc);
  }
}

// The variants of an op in the order of choice, as `cuDNN, own (unproven)`: what stands in
// brackets is said once where it holds for all.
std::string kernels_of(const Engine& engine, std::string_view op) {
  std::vector<const KernelRow*> rows;
  for (size_t i = 0; i < engine.kernel_count; ++i) {
    if (engine.kernels[i].op == op) rows.push_back(&engine.kernels[i]);
  }
  const auto unproven = [](const KernelRow* row) { return !row->proven; };
  const bool all = !rows.empty() && std::ranges::all_of(rows, unproven);
  std::string out;
  for (const KernelRow* row : rows) {
    if (!out.empty()) out += ", ";
    out += row->variant;
    if (!row->proven && (!all || row == rows.back())) out += " (unproven)";
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
  std::vector<std::array<std::string, 4>> rows{{"name", "cpu", "cuda", "meaning"}};
  for (const OpDef& op : all_ops()) {
    rows.push_back({std::string(op.name), kernels_of(*engines().cpu, op.name),
                    cuda != nullptr ? kernels_of(*cuda, op.name) : "not loaded",
                    std::string(op.doc)});
  }
  std::array<size_t, 4> width{};
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  fmt::print("ops:\n");
  for (const auto& [name, cpu, gpu, meaning] : rows) {
    fmt::print("  {:<{}} {:<{}} {:<{}} {}\n", name, width[0], cpu, width[1], gpu, width[2],
               meaning);
  }
  fmt::print(
      "  through f32: where no kernel takes tensors of 16 bits as they are; unproven: has not run "
      "on "
      "hardware yet\n");
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
