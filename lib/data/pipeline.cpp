#include "data/pipeline.h"

#include "base/error.h"

namespace dltrain {
namespace {

constexpr uint64_t kPipelineStream = random_stream("data.transforms");

TransformList for_evaluation(const TransformList& transforms) {
  TransformList out;
  for (const auto& transform : transforms) transform->add_for_evaluation(out);
  return out;
}

ImageSize output_of(const Transform& transform, const ImageSize& in, bool numbers) {
  Diagnostics diagnostics;
  if (numbers && !transform.takes_numbers()) {
    diagnostics.add(transform.location,
                    fmt::format("{} works on 8-bit images (idx, cifar10, image_folder, …); these "
                                "samples are f32 numbers",
                                transform.kind));
    diagnostics.throw_if_any();
  }
  try {
    return transform.output(in);
  } catch (const Error& error) {
    diagnostics.add(transform.location, error.what());
    throw ConfigError(diagnostics);
  }
}

}  // namespace

Pipeline::Pipeline(TransformList transforms, const ImageSize& in, bool numbers)
    : transforms_(std::move(transforms)), output_(in) {
  for (const auto& transform : transforms_) output_ = output_of(*transform, output_, numbers);
}

RandomNumbers Pipeline::random_numbers_of(size_t location, const SampleVisit& visit) {
  return {visit.seed, kPipelineStream + location, visit.position};
}

double Pipeline::needed_scale(const ImageSize& full, const SampleVisit& visit) const {
  return transforms_.empty() ? 1 : transforms_[0]->needed_scale(full, random_numbers_of(0, visit));
}

Pipelines::Pipelines(const TransformList& transforms, const ImageSize& in, bool numbers)
    : training(transforms, in, numbers), evaluation(for_evaluation(transforms), in, numbers) {
  for (const Pipeline* pipeline : {&training, &evaluation}) {
    if (pipeline->output().fixed()) continue;
    fail(ExitCode::usage,
         "images may differ in size and a batch needs one: let data.transforms end in one size, "
         "with "
         "{{resize: [height, width]}}, or {{resize: 256}} and {{center_crop: 224}}, or "
         "{{random_resized_crop: 224}} for training");
  }
  check_internal(training.output() == evaluation.output(), "training and evaluation sizes differ");
}

}  // namespace dltrain
