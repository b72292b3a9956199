#include "data/image_dataset.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "data/broken_images.h"

namespace dltrain {
namespace {

// Scratch memory of a thread.
struct Workspace {
  WorkingImage<uint8_t> frame;
  std::vector<uint8_t> file;
  std::vector<float> affine;
};

Workspace& workspace() {
  thread_local Workspace mine;
  return mine;
}

class ImageDataset final : public Dataset {
 public:
  ImageDataset(std::shared_ptr<const ImageSource> source, const SampleTransforms& changes,
               const Scaling& scaling)
      : source_(std::move(source)),
        pipelines_(changes.transforms, source_->image_size(), /*numbers=*/false),
        output_(pipelines_.training.output()),
        takes_work_(source_->encoded() || (changes.any() && output_.elements() >= kManyElements)) {
    const Shape shape{output_.height, output_.width, output_.channels};
    fields_ = {{kInputField, {shape, DType::f32}}, {kTargetField, {{}, DType::i32}}};
    if (changes.random_affine.active()) affine_.emplace(changes.random_affine, output_);
    const Scaler scaler(scaling, output_.channels);
    for (int64_t c = 0; c < output_.channels; ++c) {
      for (int v = 0; v < 256; ++v) values_.push_back(scaler(v, c));
    }
    const auto& labels = source_->labels();
    label_bound_ =
        std::max<int64_t>(0, int64_t{*std::max_element(labels.begin(), labels.end())} + 1);
  }

  int64_t size() const override { return source_->size(); }
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  bool is_expensive() const override { return takes_work_; }
  std::optional<int64_t> uniform_valid_targets() const override { return 1; }
  int64_t label_bound() const override { return label_bound_; }
  const std::vector<std::string>& class_names() const override { return source_->class_names(); }
  void hash_inputs(int64_t sample, Hasher& hasher) const override {
    hasher.update(std::as_bytes(source_->read(sample, workspace().file).bytes));
  }
  std::string location_of(int64_t sample) const override { return source_->location_of(sample); }
  void read(int field, std::span<const int64_t> samples, const SampleVisit* first,
            std::byte* out) const override {
    if (field == 1) {
      const auto& labels = source_->labels();
      for (const int64_t sample : samples) {
        std::memcpy(out, &labels[static_cast<size_t>(sample)], sizeof(int32_t));
        out += sizeof(int32_t);
      }
      return;
    }
    auto* images = reinterpret_cast<float*>(out);
    for (size_t i = 0; i < samples.size(); ++i, images += output_.elements()) {
      SampleVisit visit = first != nullptr ? *first : SampleVisit{};
      visit.position += static_cast<int64_t>(i);
      try {
        read_image(samples[i], first != nullptr, visit, images);
      } catch (const Error& error) {
        if (error.code() != ExitCode::data || !error.location().empty()) throw;
        throw undecodable(error, location_of(samples[i]));
      }
    }
  }

 private:
  void read_image(int64_t sample, bool training, const SampleVisit& visit, float* out) const {
    const Pipeline& pipeline = training ? pipelines_.training : pipelines_.evaluation;
    Workspace& work = workspace();
    const StoredImage image = source_->read(sample, work.file);
    const double scale =
        image.encoding == ImageEncoding::jpeg ? pipeline.needed_scale(image.size, visit) : 1;
    decode_image(image, output_.channels, scale, work.frame);
    pipeline.run(work.frame, visit);
    check_internal(work.frame.size() == output_, "a transform returned an unexpected size");
    store(work.frame.image(), out);
    if (training && affine_) affine_->apply(visit.seed, visit.position, out, work.affine);
  }

  void store(const ImageView<uint8_t>& image, float* out) const {
    const float* values = values_.data();
    const int64_t n = output_.width * output_.channels;
    for (int64_t y = 0; y < output_.height; ++y, out += n) {
      const uint8_t* row = image.data + y * image.row;
      if (output_.channels == 3) {
        for (int64_t i = 0; i < n; i += 3) {
          out[i] = values[row[i]];
          out[i + 1] = values[256 + row[i + 1]];
          out[i + 2] = values[512 + row[i + 2]];
        }
      } else if (output_.channels == 1) {
        for (int64_t i = 0; i < n; ++i) out[i] = values[row[i]];
      } else {
        for (int64_t i = 0; i < n; ++i) out[i] = values[(i % output_.channels) * 256 + row[i]];
      }
    }
  }

  std::shared_ptr<const ImageSource> source_;
  Pipelines pipelines_;
  ImageSize output_;
  bool takes_work_;
  std::vector<FieldSpec> fields_;
  std::optional<RandomAffine> affine_;
  std::vector<float> values_;  // the scaled values of the pixels 0 … 255, by channel
  int64_t label_bound_ = 0;
};

}  // namespace

std::shared_ptr<const Dataset> make_image_dataset(std::shared_ptr<const ImageSource> source,
                                                  const SampleTransforms& changes,
                                                  const Scaling& scaling) {
  return std::make_shared<ImageDataset>(std::move(source), changes, scaling);
}

}  // namespace dltrain
