// transform_samples: transforms of datasets whose inputs are f32 numbers.
#include "base/error.h"
#include "data/image_dataset.h"

namespace dltrain {
namespace {

ImageSize image_size_of(const FieldSpec& field) {
  const Shape& shape = field.sample.shape;
  if (shape.rank() != 2 && shape.rank() != 3) {
    fail(ExitCode::usage,
         "transforms need images, [height, width] or [height, width, channels], but '{}' is {}",
         field.name, to_string(field.sample));
  }
  return {shape[0], shape[1], shape.rank() == 3 ? shape[2] : 1};
}

// Targets of two or more dimensions are images or have a label for each pixel. They are not
// changed, so the pixels of the inputs must not move, unless no transform is random and the targets
// have the size of the transformed inputs.
void check_target(const FieldSpec& target, const ImageSize& out, const SampleTransforms& changes) {
  const Shape& shape = target.sample.shape;
  if (shape.rank() < 2) return;
  constexpr const char* kWhy =
      "{} moves pixels of the inputs, but the targets ({}) are images too and would not move with "
      "them";
  Diagnostics diagnostics;
  const bool fits = shape[0] == out.height && shape[1] == out.width;
  for (const auto& transform : changes.transforms) {
    if (!transform->moves_pixels() || (!transform->random() && fits)) continue;
    diagnostics.add(transform->location,
                    fmt::format(kWhy, transform->kind, to_string(target.sample)));
  }
  diagnostics.throw_if_any();
  if (changes.random_affine.active()) {
    fail(ExitCode::usage, kWhy, "random_affine", to_string(target.sample));
  }
}

// The change of one field.
struct FieldChange {
  ImageSize in;
  Pipelines pipelines;
  std::optional<RandomAffine> affine;
};

class TransformedDataset final : public DatasetWrapper {
 public:
  TransformedDataset(std::shared_ptr<const Dataset> whole, const SampleTransforms& changes)
      : DatasetWrapper(std::move(whole)),
        fields_(this->whole().fields()),
        changes_(fields_.size()) {
    bool any = false;
    for (int field = 0; field < target_field(); ++field) {
      FieldSpec& spec = fields_[static_cast<size_t>(field)];
      if (spec.sample.dtype != DType::f32) continue;
      const ImageSize in = image_size_of(spec);
      FieldChange change{in, Pipelines(changes.transforms, in, /*numbers=*/true), {}};
      const ImageSize& out = change.pipelines.training.output();
      check_target(fields_.back(), out, changes);
      spec.sample.shape = spec.sample.shape.rank() == 2
                              ? Shape{out.height, out.width}
                              : Shape{out.height, out.width, out.channels};
      if (changes.random_affine.active()) {
        change.affine.emplace(changes.random_affine, out);
      }
      changes_[static_cast<size_t>(field)] = std::move(change);
      any = true;
    }
    if (!any) fail(ExitCode::usage, "transforms need images as inputs, but no input is f32");
  }

  const std::vector<FieldSpec>& fields() const override { return fields_; }
  bool is_expensive() const override { return fields_[0].sample.shape.elements() >= kManyElements; }
  void read(int field, std::span<const int64_t> samples, const SampleVisit* first,
            std::byte* out) const override {
    const auto& change = changes_[static_cast<size_t>(field)];
    if (!change) return whole().read(field, samples, first, out);
    thread_local WorkingImage<float> frame;
    thread_local std::vector<float> original, affine;
    const auto in = static_cast<size_t>(change->in.elements());
    if (original.size() < in) original.resize(in);
    const Pipeline& pipeline =
        first != nullptr ? change->pipelines.training : change->pipelines.evaluation;
    auto* to = reinterpret_cast<float*>(out);
    for (size_t i = 0; i < samples.size(); ++i) {
      SampleVisit visit = first != nullptr ? *first : SampleVisit{};
      visit.position += static_cast<int64_t>(i);
      whole().gather(field, samples.subspan(i, 1), reinterpret_cast<std::byte*>(original.data()));
      frame.look_at({original.data(), change->in, change->in.width * change->in.channels});
      pipeline.run(frame, visit);
      const ImageView<float>& image = frame.image();
      const int64_t row = image.size.width * image.size.channels;
      float* start = to;
      for (int64_t y = 0; y < image.size.height; ++y, to += row) {
        std::copy_n(image.data + y * image.row, row, to);
      }
      if (first != nullptr && change->affine) {
        change->affine->apply(visit.seed, visit.position, start, affine);
      }
    }
  }

 private:
  std::vector<FieldSpec> fields_;
  std::vector<std::optional<FieldChange>> changes_;  // by field
};

}  // namespace

std::shared_ptr<const Dataset> transform_samples(std::shared_ptr<const Dataset> whole,
                                                 const SampleTransforms& changes) {
  if (!changes.any()) return whole;
  return std::make_shared<TransformedDataset>(std::move(whole), changes);
}

}  // namespace dltrain
