#include "train/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <nlohmann/json.hpp>

#include "base/atomic_directory.h"
#include "base/error.h"
#include "base/version.h"
#include "train/weights.h"

namespace dltrain {
namespace {

constexpr int kFormat = 1;
constexpr uint64_t kMaxStateBytes = 1 << 20;

std::string step_name(int64_t step) {
  return fmt::format("step-{:06}", step);
}

bool is_step_name(const std::string& name) {
  return name.size() >= 11 && name.size() <= 23 && name.starts_with("step-") &&
         name.find_first_not_of("0123456789", 5) == std::string::npos;
}

void point_latest_at(const std::filesystem::path& folder, const std::string& name) {
  const std::filesystem::path link = folder / "latest", beside = folder / ".tmp-latest";
  std::error_code error;
  std::filesystem::remove(beside, error);
  std::filesystem::create_symlink(name, beside, error);
  if (error) fail_storage(beside, "link", error.value());
  std::filesystem::rename(beside, link, error);
  if (error) fail_storage(link, "rename", error.value());
  sync_directory(folder);
}

}  // namespace

void CheckpointFolder::clean() {
  if (std::filesystem::exists(folder_)) remove_leftovers(folder_);
}

std::vector<std::filesystem::path> CheckpointFolder::list() const {
  std::vector<std::filesystem::path> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    if (is_step_name(entry.path().filename().string()) && !entry.is_symlink()) {
      out.push_back(entry.path());
    }
  }
  std::sort(out.begin(), out.end(),
            [](const auto& a, const auto& b) { return checkpoint_step(a) < checkpoint_step(b); });
  return out;
}

std::filesystem::path CheckpointFolder::save(Executor& executor, const CheckpointState& state,
                                             const std::string& config, int64_t keep) {
  const std::string name = step_name(state.step);
  AtomicDirectory directory(folder_ / name);
  save_tensors(executor, directory.create("model.safetensors"), {Role::parameter, Role::buffer},
               {{"format", "pt"}, {"dltrain", std::string(version())}});
  save_tensors(executor, directory.create("optimizer.safetensors"), {Role::moment}, {});
  const nlohmann::ordered_json json{{"format", kFormat},
                                    {"step", state.step},
                                    {"updates", state.updates},
                                    {"seed", state.seed},
                                    {"global_batch_size", state.global_batch},
                                    {"train_samples", state.train_samples},
                                    {"dltrain", std::string(version())}};
  directory.create("state.json").write(json.dump(2) + "\n");
  directory.create("config.yaml").write(config);
  directory.publish();
  point_latest_at(folder_, name);
  if (keep > 0) {
    const auto all = list();
    for (size_t i = 0; i + static_cast<size_t>(keep) < all.size(); ++i) {
      if (all[i].filename() != name) remove_recursively(all[i]);
    }
  }
  return folder_ / name;
}

int64_t checkpoint_step(const std::filesystem::path& checkpoint) {
  return std::stoll(checkpoint.filename().string().substr(5));
}

CheckpointState read_checkpoint_state(const std::filesystem::path& checkpoint) {
  verify_checksums(checkpoint);
  const std::filesystem::path path = checkpoint / "state.json";
  const auto json =
      nlohmann::json::parse(read_file(path, kMaxStateBytes, ExitCode::storage), nullptr, false);
  const auto number = [&](const char* key) -> int64_t {
    if (!json.is_object() || !json.contains(key) || !json[key].is_number_integer()) {
      fail(ExitCode::storage, "{}: no whole number '{}'", path.string(), key);
    }
    return json[key].get<int64_t>();
  };
  if (number("format") != kFormat) {
    fail(ExitCode::storage, "{}: format {}, this program reads format {}", path.string(),
         number("format"), kFormat);
  }
  CheckpointState state{.step = number("step"),
                        .updates = number("updates"),
                        .seed = number("seed"),
                        .global_batch = number("global_batch_size"),
                        .train_samples = number("train_samples")};
  if (state.step < 0 || state.updates < 0 || state.updates > state.step || state.global_batch < 1) {
    fail(ExitCode::storage, "{}: step {}, updates {}, global batch {} cannot be", path.string(),
         state.step, state.updates, state.global_batch);
  }
  return state;
}

void load_checkpoint(Executor& executor, const std::filesystem::path& checkpoint,
                     const CheckpointState& state) {
  restore_tensors(executor, checkpoint / "model.safetensors", {Role::parameter, Role::buffer});
  restore_tensors(executor, checkpoint / "optimizer.safetensors", {Role::moment});
  executor.set_updates(state.updates);
}

}  // namespace dltrain
