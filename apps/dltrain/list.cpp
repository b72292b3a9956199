// dltrain list [FAMILY [NAME]]: lists the registries.
#include <algorithm>
#include <array>
#include <functional>

#include "config/reference.h"
#include "config/suggest.h"
#include "data/config.h"
#include "data/transform.h"
#include "dltrain/commands.h"
#include "nn/model_files.h"
#include "ops/kernel.h"
#include "text/config.h"

namespace dltrain {
namespace {

// A name and what it means.
using Entry = std::pair<std::string, std::string>;

std::vector<Entry> entries_of(const KindTableRef& table) {
  std::vector<Entry> entries;
  for (size_t i = 0; i < table.size; ++i) {
    entries.emplace_back(table.row(i).name, table.row(i).doc);
  }
  return entries;
}

// Breaks the text between words; lines after the first are indented.
std::string wrapped(const std::string& text, size_t indent) {
  constexpr size_t kColumns = 100;
  std::string out;
  size_t column = indent;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (column > indent && column + 1 + end - at > kColumns) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += text.substr(at, end - at);
    column += end - at;
    at = end + 1;
  }
  return out;
}

void print_entries(const std::vector<Entry>& entries) {
  size_t width = 0;
  for (const Entry& entry : entries) width = std::max(width, entry.first.size());
  for (const auto& [name, doc] : entries) {
    fmt::print("  {:<{}}  {}\n", name, width, wrapped(doc, width + 4));
  }
}

void show_kind(const KindTableRef& table, const std::string& name) {
  const size_t index = table.index(name);
  const auto kind = table.make(index);
  const KindTableRef::Row row = table.row(index);
  fmt::print("{}: {}\n", name, row.doc);
  if (!row.bare_key.empty()) fmt::print("in short: `{}: VALUE` sets {}\n", name, row.bare_key);
  std::vector<Entry> entries;
  for (const KeyRow& key : key_rows(ObjectRef::of(*kind))) {
    std::string text = key.doc + " (" + key.type;
    if (!key.limits.empty()) text += ": " + key.limits;
    text += key.initial == "required" ? "; required)"
            : key.initial == "none"   ? ")"
                                      : "; default " + key.initial + ")";
    entries.emplace_back(key.name, text);
  }
  print_entries(entries);
}

// Returns the variants of an op in the order of choice: `cuDNN, own (unproven)`. If all are
// unproven, the word is printed once.
std::string kernels_of(const Engine& engine, std::string_view op) {
  std::vector<const KernelRow*> rows = kernel_rows(engine, op);
  std::erase_if(rows, [](const KernelRow* row) {
    return row->missing != nullptr && !row->missing(nullptr).empty();
  });
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

std::vector<Entry> model_entries() {
  std::vector<Entry> entries;
  for (const EmbeddedFile& file : model_files()) {
    entries.emplace_back(file.name, summarize(file).description);
  }
  return entries;
}

void show_model(const std::string& name) {
  const ModelSummary summary =
      summarize(*std::ranges::find(model_files(), name, &EmbeddedFile::name));
  fmt::print("{}: {}\n", name, summary.description);
  std::vector<Entry> entries;
  for (const auto& p : summary.parameters) {
    const std::string initial = p.initial.is_scalar() ? p.initial.text : "in the file";
    entries.emplace_back(p.name.text,
                         fmt::format("{}{}{} (default {})", p.doc, p.choices.empty() ? "" : ": ",
                                     join_names(p.choices), initial));
  }
  print_entries(entries);
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
  for (const auto& [name, cpu, gpu, meaning] : rows) {
    fmt::print("  {:<{}} {:<{}} {:<{}} {}\n", name, width[0], cpu, width[1], gpu, width[2],
               meaning);
  }
  fmt::print(
      "  through f32: tensors of 16 bits are converted where no kernel takes them; unproven: has "
      "not "
      "run on hardware yet\n");
  if (cuda == nullptr) {
    fmt::print("  cuda: {}\n", why);
    return;
  }
  const auto device = open_first_gpu(why);
  for (const std::string& line : describe_kernels(*cuda, device.get())) {
    fmt::print("  cuda, {}\n", line);
  }
}

void list_devices() {
  const auto show = [](const Engine& engine, int index) {
    const bool gpu = std::string_view(engine.name) == "cuda";
    const std::string device_name = gpu ? fmt::format("cuda:{}", index) : engine.name;
    try {
      const DeviceProperties p = engine.open(index)->properties();
      fmt::print("  {:<8} {} ({}), {} {}, {} MiB of {} MiB free; {}\n", device_name, p.name,
                 p.architecture, p.processors, gpu ? "multiprocessors" : "cores",
                 p.free_memory >> 20, p.total_memory >> 20, p.libraries);
    } catch (const Error& error) {
      if (!gpu) throw;
      fmt::print("  {:<8} cannot be used: {}\n", device_name, error.what());
    }
  };
  show(*engines().cpu, 0);
  std::string why;
  const Engine* cuda = load_engine_plugin("cuda", why);
  for (int i = 0; cuda != nullptr && i < cuda->device_count(); ++i) show(*cuda, i);
  if (cuda == nullptr) fmt::print("  cuda: {}\n", why);
}

struct Family {
  std::string name;
  std::function<std::vector<Entry>()> entries;
  std::function<void(const std::string&)> show = {};  // the keys of one
  std::function<void()> print = {};                   // instead of the entries
};

template <typename Base>
Family family_of(const char* name, const KindTable<Base>& table) {
  return {name, [&] { return entries_of(table.ref()); },
          [&](const std::string& kind) { show_kind(table.ref(), kind); }};
}

std::vector<Family> families() {
  const auto op_entries = [] {
    std::vector<Entry> entries;
    for (const OpDef& op : all_ops()) entries.emplace_back(op.name, op.doc);
    return entries;
  };
  return {{"models", model_entries, show_model},
          family_of("layers", layer_table()),
          family_of("initializers", initializer_table()),
          family_of("losses", loss_table()),
          family_of("optimizers", optimizer_table()),
          family_of("schedules", schedule_table()),
          family_of("datasets", dataset_table()),
          family_of("tokenizers", tokenizer_table()),
          family_of("transforms", transform_table()),
          {"ops", op_entries, {}, list_ops},
          {"devices", [] { return std::vector<Entry>(); }, {}, list_devices}};
}

[[noreturn]] void refuse_name(const std::string& what, const std::string& name,
                              const std::vector<std::string>& known) {
  const std::string near = nearest_name(name, known);
  fail(ExitCode::usage, "there is no {} '{}'{}", what, name,
       near.empty() ? "; known: " + join_names(known) : fmt::format("; did you mean {}?", near));
}

std::vector<std::string> names_in(const std::vector<Entry>& entries) {
  std::vector<std::string> names;
  for (const Entry& entry : entries) names.push_back(entry.first);
  return names;
}

// Names alone.
void list_all() {
  for (const Family& family : families()) {
    if (family.print) continue;
    const std::string names = join_names(names_in(family.entries()));
    fmt::print("{:<12}  {}\n", family.name, wrapped(names, 14));
  }
  fmt::print(
      "dltrain list layers: what each is; list layers conv2d: its keys; list ops: kernels; list "
      "devices\n");
}

void list_family(const Family& family, const std::string& name) {
  if (name.empty()) {
    if (family.print) return family.print();
    return print_entries(family.entries());
  }
  const std::vector<std::string> known = names_in(family.entries());
  if (!family.show) fail(ExitCode::usage, "{} have no keys; give no name", family.name);
  if (!contains(known, name)) refuse_name("entry of " + family.name, name, known);
  family.show(name);
}

}  // namespace

std::map<std::string, std::vector<std::string>> list_families() {
  std::map<std::string, std::vector<std::string>> out;
  for (const Family& row : families()) {
    out[row.name] = row.show ? names_in(row.entries()) : std::vector<std::string>();
  }
  return out;
}

CommandBody add_list(CLI::App& command) {
  auto family = std::make_shared<std::string>(), name = std::make_shared<std::string>();
  command.add_option("FAMILY", *family, "What to list, such as layers; without it all names");
  command.add_option("NAME", *name, "One of the family, such as conv2d: its keys");
  return [family, name] {
    if (family->empty()) {
      list_all();
      return ExitCode::ok;
    }
    for (const Family& row : families()) {
      if (row.name != *family) continue;
      list_family(row, *name);
      return ExitCode::ok;
    }
    std::vector<std::string> known;
    for (const Family& row : families()) known.push_back(row.name);
    refuse_name("family", *family, known);
  };
}

}  // namespace dltrain
