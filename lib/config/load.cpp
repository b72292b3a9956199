// Configuration files and the files that they extend: `extends: other.yaml` at the top of a file
// (or a list of files) is merged below the file; paths are relative to that file. A cycle is a
// problem that shows the chain. Keys `x-…` at the top are left out: they hold YAML anchors.
#include "config/load.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "base/owned_files.h"
#include "base/utf8.h"
#include "config/environment.h"
#include "config/override.h"
#include "config/paths.h"
#include "config/yaml.h"

namespace dltrain {
namespace {

// The limit of configuration files, including those that `extends` names.
constexpr size_t kMaxConfigFiles = 100;

namespace fs = std::filesystem;

// Reads a file, up to some bytes above the limit, which read_yaml() then refuses. Errors are
// reported at `location`, which names the file.
std::shared_ptr<const Source> read_source(const fs::path& path, const SourceLocation& location,
                                          Diagnostics& diagnostics) {
  const auto refuse = [&](std::string_view why) {
    diagnostics.add(location, "cannot read {}: {}", path.string(), why);
    return nullptr;
  };
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    const fs::path inside = path / "config.yaml";
    const bool run = fs::exists(inside, ignored);
    return refuse("it is a folder" +
                  (run ? fmt::format("; its configuration is {}", inside.string()) : ""));
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (!file) return refuse(std::strerror(errno) + suggest_path(path));
  if (const std::string type = path.extension().string(); type == ".csv" || type == ".tsv") {
    return refuse(fmt::format(
        "it is a table, not an experiment file (YAML); `dltrain init mlp --data {}` writes one",
        path.string()));
  }
  check_no_output(::fileno(file.get()), path);
  std::string text, part(1 << 16, '\0');
  errno = 0;
  for (size_t n = 1; n > 0 && text.size() < YamlLimits::kBytes + 4; text.append(part, 0, n)) {
    n = std::fread(part.data(), 1, part.size(), file.get());
  }
  if (std::ferror(file.get())) return refuse(std::strerror(errno));
  if (looks_like_utf16(text)) return refuse("it is UTF-16; save it as UTF-8");
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);  // byte order mark
  return std::make_shared<Source>(Source{path.string(), std::move(text)});
}

class FileLoader {
 public:
  FileLoader(const EnvironmentLookup& environment, Diagnostics& diagnostics)
      : environment_(environment), diagnostics_(diagnostics) {}

  // `location`: that of the `extends`; unknown for files of the command line.
  std::optional<ConfigNode> load(const fs::path& path, const SourceLocation& location) {
    std::error_code error;
    fs::path identity = fs::weakly_canonical(path, error);
    if (error) identity = path.lexically_normal();
    if (std::find(chain_.begin(), chain_.end(), identity) != chain_.end()) {
      std::string cycle;
      for (const std::string& name : names_) cycle += name + " -> ";
      diagnostics_.add(location, "'extends' forms a cycle: {}{}", cycle, path.string());
      return {};
    }
    if (++loaded_ > kMaxConfigFiles) {
      diagnostics_.add(location, "more than {} configuration files", kMaxConfigFiles);
      return {};
    }
    const auto source = read_source(path, location, diagnostics_);
    if (!source) return {};
    auto tree = read_yaml(source, 0, diagnostics_);
    if (!tree) return {};
    if (tree->is_null()) tree = ConfigNode::make_map(tree->location);
    if (!tree->is_map()) {
      diagnostics_.add(tree->location, "expected a map of sections, got {}", describe_found(*tree));
      return {};
    }
    const std::vector<ConfigNode::Key> keys = tree->keys;
    for (const ConfigNode::Key& key : keys) {
      if (key.text.starts_with("x-")) tree->erase(key.text);
    }
    chain_.push_back(identity);
    names_.push_back(path.string());
    auto merged = with_bases(*std::move(tree));
    chain_.pop_back();
    names_.pop_back();
    return merged;
  }

 private:
  std::optional<ConfigNode> with_bases(ConfigNode tree) {
    ConfigNode* extends = tree.find("extends");
    if (!extends) return tree;
    const size_t before = diagnostics_.reported();
    expand_environment(*extends, environment_, diagnostics_);
    std::vector<ConfigNode> bases;
    if (extends->is_list()) {
      bases = extends->items;
    } else {
      bases.push_back(*extends);
    }
    tree.erase("extends");
    ConfigNode merged = ConfigNode::make_map({});
    for (const ConfigNode& base : bases) {
      if (!base.is_scalar() || base.text.empty()) {
        diagnostics_.add(base.location, "expected the path of a file for extends, got {}",
                         describe_found(base));
        continue;
      }
      const fs::path found = find_path(base.location, base.text);
      std::error_code ignored;
      if (!fs::exists(found, ignored)) {
        diagnostics_.add(base.location, "{}", no_such_path(base.location, base.text));
      }
      auto loaded = diagnostics_.reported() == before
                        ? load(found.lexically_normal(), base.location)
                        : std::nullopt;
      if (loaded) merge_into(merged, *std::move(loaded));
    }
    if (diagnostics_.reported() != before) return {};
    merge_into(merged, std::move(tree));
    return merged;
  }

  const EnvironmentLookup& environment_;
  Diagnostics& diagnostics_;
  std::vector<fs::path> chain_;     // files being loaded, canonical
  std::vector<std::string> names_;  // their names in messages
  size_t loaded_ = 0;
};

// Merges all files in order (none: an empty map). Returns nothing if a file could not be read.
std::optional<ConfigNode> load_files(std::span<const fs::path> files,
                                     const EnvironmentLookup& environment,
                                     Diagnostics& diagnostics) {
  FileLoader loader(environment, diagnostics);
  std::optional<ConfigNode> merged = ConfigNode::make_map({});
  for (const fs::path& path : files) {
    auto tree = loader.load(path, {});
    if (!tree) {
      merged.reset();
    } else if (merged) {  // after an unreadable file only errors are collected
      merge_into(*merged, *std::move(tree));
    }
  }
  return merged;
}

}  // namespace

std::optional<std::string> environment_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (!value) return {};
  return std::string(value);
}

std::optional<ConfigNode> load_tree(const ConfigInputs& inputs, Diagnostics& diagnostics) {
  std::optional<ConfigNode> tree = load_files(inputs.files, inputs.environment, diagnostics);
  // Overrides are read in any case, so that their problems are in the same report.
  std::vector<Override> overrides = parse_overrides(inputs.overrides, diagnostics);
  if (!tree) return {};
  apply_overrides(*tree, std::move(overrides), diagnostics);
  expand_environment(*tree, inputs.environment, diagnostics);
  return tree;
}

}  // namespace dltrain
