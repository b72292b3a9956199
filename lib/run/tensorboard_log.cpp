#include "run/tensorboard_log.h"

#include <algorithm>
#include <map>

#include "config/diff.h"
#include "config/dump.h"
#include "data/picture.h"

namespace dltrain {
namespace {

using Keys = std::vector<std::pair<std::string, std::string>>;

// Returns the keys of a configuration that change its result, where they are not the defaults.
Keys hyperparameters(const std::string& resolved_config) {
  constexpr std::string_view kSections[] = {"seed",      "loss.",      "optimizer.",
                                            "training.", "precision.", "lr_scheduler."};
  std::map<std::string, std::string> defaults;
  for (const ConfigDifference& key : keys_of_dump(dump_config(Experiment()))) {
    defaults.emplace(key.path, key.after);
  }
  Keys out;
  for (const ConfigDifference& key : keys_of_dump(resolved_config)) {
    if (defaults[key.path] == key.after || key.after == "null" || key.after == "[]") continue;
    const bool counts = std::ranges::any_of(
        kSections, [&](std::string_view section) { return key.path.starts_with(section); });
    if (counts) out.emplace_back(key.path, key.after);
  }
  return out;
}

}  // namespace

TensorBoardLog::TensorBoardLog(const Session& session, const std::filesystem::path& folder,
                               std::optional<int64_t> resumed_step,
                               const std::string& resolved_config)
    : session_(session), writer_(folder / "tensorboard", resumed_step) {
  if (resumed_step) return;
  writer_.add_hparams(hyperparameters(resolved_config));
  writer_.add_text(0, "configuration", "```yaml\n" + resolved_config + "```");
  add_first_images();
}

void TensorBoardLog::add_first_images() {
  const TensorSpec& sample = session_.data.train->fields().front().sample;
  const Shape& image = sample.shape;
  const int64_t channels = image.rank() == 3 ? image[2] : 1;
  if (sample.dtype != DType::f32 || image.rank() < 2 || image.rank() > 3 ||
      (channels != 1 && channels != 3)) {
    return;
  }
  TrainLoader loader(session_.data.train, train_loader_options(session_, 0, 0),
                     session_.executor->device());
  const Batch& batch = loader.next();
  std::vector<std::string> captions;
  for (int64_t i = 0; i < std::min<int64_t>(batch.samples, 16); ++i) {
    captions.push_back(std::to_string(i + 1));
  }
  const Picture grid = contact_sheet({reinterpret_cast<const float*>(batch.fields.front()),
                                      captions.size() * static_cast<size_t>(image.elements())},
                                     image[0], image[1], channels, captions);
  writer_.add_image(0, "train/images", grid.height(), grid.width(), grid.png());
}

std::string TensorBoardLog::end() {
  try {
    writer_.add_end(step_);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

void TensorBoardLog::add_step(const StepRecord& r) {
  const auto scalar = [&](const std::string& tag, double value) {
    writer_.add_scalar(r.step, tag, value);
  };
  scalar("train/loss", r.loss);
  for (const auto& [label, value] : r.metrics) scalar("train/" + label, value);
  scalar("train/learning_rate", r.learning_rate);
  scalar("train/grad_norm", r.grad_norm);
  scalar("train/epoch", r.epoch);
  scalar("speed/samples_per_second", r.samples_per_second);
  scalar("speed/step_ms", r.step_ms);
  scalar("speed/data_wait_ms", r.data_wait_ms);
}

void TensorBoardLog::add_evaluation(const EvaluationRecord& r) {
  for (const auto& [label, value] : r.metrics) writer_.add_scalar(r.step, "eval/" + label, value);
}

void TensorBoardLog::add_samples(const SampleRecord& r) {
  for (size_t i = 0; i < r.texts.size(); ++i) {
    // Indented, so that it is not rendered as Markdown.
    std::string text = "    ";
    for (char c : r.texts[i].prompt + r.texts[i].text)
      text += c == '\n' ? std::string("\n    ") : std::string(1, c);
    writer_.add_text(r.step, fmt::format("samples/{}", i + 1), text);
  }
}

void TensorBoardLog::after_step(int64_t step) {
  step_ = step;
  const auto& every = session_.experiment->logging.histogram_steps;
  if (!every || step % *every != 0) return;
  Executor& executor = *session_.executor;
  for (const StateTensor& tensor : executor.layout().tensors()) {
    if (tensor.role != Role::parameter && tensor.role != Role::gradient) continue;
    if (tensor.spec.dtype == DType::f64) continue;
    const std::vector<float> values = executor.read_floats(tensor.name);
    const char* folder = tensor.role == Role::parameter ? "weights/" : "gradients/";
    writer_.add_histogram(step, folder + tensor.owner, values);
  }
}

}  // namespace dltrain
