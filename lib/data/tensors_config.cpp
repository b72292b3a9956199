// The keys of `type: tensors`.
#include "data/registry.h"
#include "data/scaling_config.h"
#include "data/tensors.h"

namespace dltrain {
namespace {

struct TensorsConfig final : DatasetConfig {
  TensorsOptions options;
  ScalingConfig scaling;

  TensorsConfig() { shuffle = false; }

  void describe(Fields& f) override {
    f.text("path", options.path, {.doc = "A safetensors file", .required = true, .is_path = true});
    f.text_map("inputs", options.inputs,
               {.doc = "Input of the model: tensor of the file; or just the name of a tensor for "
                       "the input `input`",
                .min_size = 1,
                .scalar_ok = true});
    f.text("targets", options.targets,
           {.doc = "Tensor with the targets; -100 is ignored", .known_as = {"target", "labels"}});
    f.integer("classes", options.classes,
              {.doc = "Labels must be below this", .min = 1, .known_as = {"num_classes"}});
    scaling.describe(f);
    DatasetConfig::describe(f);
  }

  void validate(Problems& problems) const override { scaling.validate(*this, {}, problems); }

  std::shared_ptr<const Dataset> open() const override {
    TensorsOptions resolved = options;
    resolved.scaling = scaling.options();
    return load_tensors(resolved);
  }
};

}  // namespace

KindRow<DatasetConfig> tensors_row() {
  return {"tensors", "Tensors of a safetensors file, whose first dimension counts samples",
          make_kind_of<TensorsConfig>};
}

}  // namespace dltrain
