#include "config/paths.h"

#include <algorithm>

#include <fmt/format.h>
#include <glob.h>

#include "base/owned_files.h"
#include "config/fields.h"
#include "config/suggest.h"
#include "config/tree.h"

namespace dltrain {
namespace {

namespace fs = std::filesystem;

bool path_exists(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored)) return true;
  if (path.string().find_first_of("*?[") == std::string::npos) return false;
  glob_t found{};
  const bool any = ::glob(path.c_str(), 0, nullptr, &found) == 0;
  ::globfree(&found);
  return any;
}

// Returns the folder against which a relative path is resolved first; empty: the current folder.
fs::path folder_of(const SourceLocation& location) {
  if (!location.known() || location.is_override()) return {};
  return fs::path(location.source->name).parent_path();
}

class MissingPaths final : public Fields {
 public:
  explicit MissingPaths(Diagnostics& diagnostics) : diagnostics_(diagnostics) {}

  void visit(ObjectRef object) {
    const ConfigObject* outer = std::exchange(object_, object.located());
    object.describe(*this);
    object_ = outer;
  }

 protected:
  void on_value(std::string_view name, const ValueSlot& slot, const Key& key) override {
    if (!key.is_path) return;
    Value value = slot.get();
    each_path(value, [&](const std::string& path) { check(name, path); });
  }
  void on_section(std::string_view, const SectionSlot& slot, const Key&) override {
    if (slot.present()) visit(slot.open());
  }
  void on_sections(std::string_view, const SectionsSlot& slot, const Key&) override {
    for (size_t i = 0; i < slot.size(); ++i) visit(slot.at(i));
  }
  void on_kind(std::string_view, const KindSlot& slot, const Key&) override {
    if (ConfigVariant* kind = slot.get()) visit(ObjectRef::of(*kind));
  }
  void on_kinds(std::string_view, const KindsSlot& slot, const Key&) override {
    for (size_t i = 0; i < slot.size(); ++i) visit(ObjectRef::of(*slot.at(i)));
  }
  void on_parts(const PartsSlot& slot, const Key& key) override {
    for (const PartsSlot::Part& part : slot.parts) on_kind(part.name, part.slot, key);
  }

 private:
  void check(std::string_view name, const std::string& path) {
    if (path_exists(path)) return;
    const SourceLocation location =
        object_ != nullptr ? object_->location_of(name) : SourceLocation();
    diagnostics_.add(location, "{}: {}", location.path.empty() ? name : location.path,
                     no_such_path(location, path));
  }

  Diagnostics& diagnostics_;
  const ConfigObject* object_ = nullptr;
};

}  // namespace

fs::path beside_configuration(const SourceLocation& location, const std::string& given,
                              const std::function<bool(const fs::path&)>& is_there) {
  const fs::path path = given;
  if (path.is_absolute()) return path;
  const fs::path beside = folder_of(location) / path;
  return is_there(beside) ? beside : path;
}

void each_path(Value& value, const std::function<void(std::string&)>& use) {
  if (auto* text = std::get_if<std::string>(&value)) use(*text);
  if (auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    for (std::string& text : *texts) use(text);
  }
  if (auto* pairs = std::get_if<TextPairs>(&value)) {
    for (auto& [key, text] : *pairs) use(text);
  }
}

std::string find_path(const SourceLocation& location, const std::string& given) {
  return beside_configuration(location, given, path_exists).string();
}

std::string no_such_path(const SourceLocation& location, const std::string& path) {
  const fs::path beside = folder_of(location) / path;
  std::error_code ignored;
  const std::string tried =
      fs::path(path).is_absolute()
          ? ""
          : fmt::format(" (looked in {}{})",
                        beside == path ? "" : folder_of(location).string() + " and ",
                        fs::current_path(ignored).string());
  std::string hint = suggest_path(beside);
  if (hint.empty()) hint = suggest_path(path);
  return fmt::format("No such file or folder: {}{}{}", path, tried, hint);
}

std::string suggest_path(const fs::path& missing) {
  constexpr size_t kMax = 10'000;
  std::error_code error;
  fs::path folder = missing.parent_path(), name = missing.filename(), rest;
  while (!folder.empty() && folder.has_relative_path() && !fs::exists(folder, error)) {
    rest = rest.empty() ? name : name / rest;
    name = folder.filename();
    folder = folder.parent_path();
  }
  std::vector<std::string> names;
  for (fs::directory_iterator entry(folder.empty() ? "." : folder, error), end;
       !error && entry != end && names.size() < kMax; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::ranges::sort(names);
  std::string near = nearest_name(name.string(), names);
  // The same ending is no likeness of names.
  const fs::path found = near;
  const std::vector<std::string> stem{found.stem().string()};
  if (found.extension() == name.extension() && nearest_name(name.stem().string(), stem).empty()) {
    near.clear();
  }
  if (near.empty()) return "";
  const fs::path whole = folder / near / rest;
  return fmt::format("; did you mean {}?",
                     (!rest.empty() && path_exists(whole) ? whole : folder / near).string());
}

void refuse_outputs(const ConfigNode& tree) {
  if (!any_output()) return;  // without one nothing is searched
  for (const ConfigNode& item : tree.items) refuse_outputs(item);
  // A name without these characters (`name: mlp`) is no path.
  if (!tree.is_scalar() || tree.text.find_first_of("/.") == std::string::npos) return;
  glob_t found{};
  std::vector<fs::path> files;
  if (::glob(find_path(tree.location, tree.text).c_str(), 0, nullptr, &found) == 0) {
    files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  ::globfree(&found);
  for (const fs::path& file : files) check_no_output(file);
}

void refuse_missing_paths(ObjectRef object, ExitCode code) {
  Diagnostics diagnostics;
  MissingPaths(diagnostics).visit(object);
  diagnostics.throw_if_any(code);
}

}  // namespace dltrain
