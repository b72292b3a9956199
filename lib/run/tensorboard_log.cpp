#include "run/tensorboard_log.h"

#include <algorithm>
#include <cmath>

namespace dltrain {
namespace {

constexpr int64_t kMaxImages = 16, kImagesInRow = 4;

// The images of a batch in a grid, scaled to the range of their values.
class ImageGrid {
 public:
  ImageGrid(const Shape& image, int64_t count)
      : height_(image[0]),
        width_(image[1]),
        channels_(image.rank() == 3 ? image[2] : 1),
        columns_(std::min(count, kImagesInRow)),
        rows_((count + columns_ - 1) / columns_),
        pixels_(static_cast<size_t>(rows_ * height_ * columns_ * width_ * channels_)) {}

  static bool fits(const TensorSpec& sample) {
    const Shape& shape = sample.shape;
    return sample.dtype == DType::f32 &&
           (shape.rank() == 2 || (shape.rank() == 3 && (shape[2] == 1 || shape[2] == 3)));
  }

  void fill(std::span<const float> values) {
    const auto [least, greatest] = std::minmax_element(values.begin(), values.end());
    const float range = std::max(*greatest - *least, 1e-12f);
    const int64_t row = width_ * channels_;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const int64_t sample = at / (height_ * row), y = at / row % height_, x = at % row;
      const int64_t line = sample / columns_ * height_ + y;
      const int64_t pixel = (line * columns_ + sample % columns_) * row + x;
      pixels_[static_cast<size_t>(pixel)] =
          static_cast<uint8_t>(std::lround(255.0f * (values[i] - *least) / range));
    }
  }

  TensorBoardImage image() const {
    return {.width = static_cast<int>(columns_ * width_),
            .height = static_cast<int>(rows_ * height_),
            .channels = static_cast<int>(channels_),
            .pixels = pixels_};
  }

 private:
  int64_t height_, width_, channels_, columns_, rows_;
  std::vector<uint8_t> pixels_;
};

}  // namespace

TensorBoardLog::TensorBoardLog(const Session& session, const std::filesystem::path& folder,
                               std::optional<int64_t> resumed_step,
                               const std::string& resolved_config)
    : session_(session), writer_(folder / "tensorboard", resumed_step) {
  if (resumed_step) return;
  writer_.add_text(0, "configuration", "```yaml\n" + resolved_config + "```");
  add_first_images();
}

void TensorBoardLog::add_first_images() {
  const TensorSpec& sample = session_.data.train->fields().front().sample;
  if (!ImageGrid::fits(sample)) return;
  TrainLoader loader(session_.data.train, train_loader_options(session_, 0, 0),
                     session_.executor->device());
  const Batch& batch = loader.next();
  const int64_t count = std::min(batch.samples, kMaxImages);
  ImageGrid grid(sample.shape, count);
  grid.fill({reinterpret_cast<const float*>(batch.fields.front()),
             static_cast<size_t>(count * sample.shape.elements())});
  writer_.add_image(0, "train/images", grid.image());
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
