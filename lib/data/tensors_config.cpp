// The keys of `type: tensors`.
#include "data/config.h"
#include "data/scaling_config.h"
#include "data/tensors.h"

namespace dltrain {
namespace {

struct TensorsConfig final : DatasetConfig {
  TensorsOptions options;
  std::optional<std::string> path;
  ScalingConfig scaling;

  void describe(Fields& f) override {
    f.text(
        "path", path,
        {.doc = "A safetensors file; absent: inputs and targets are .npy files", .is_path = true});
    f.text_map("inputs", options.inputs,
               {.doc = "Input of the model: tensor of the file, or a .npy file; or just that for "
                       "the input `input`",
                .min_size = 1,
                .scalar_ok = true});
    f.text("targets", options.targets,
           {.doc = "Tensor, or .npy file, with the targets; -100 is ignored",
            .known_as = {"target", "labels"}});
    f.integer("classes", options.classes,
              {.doc = "Labels must be below this", .min = 1, .known_as = {"num_classes"}});
    scaling.describe(f);
    DatasetConfig::describe(f);
  }

  void validate(Diagnostics& diagnostics) const override {
    DatasetConfig::validate(diagnostics);
    scaling.validate(*this, {}, diagnostics);
    if (path) return;
    const auto check = [&](const char* key, const std::string& name) {
      if (name.ends_with(".npy")) return;
      diagnostics.add(*this, key,
                      fmt::format("'{}' is not a .npy file, and no `path` names a safetensors file "
                                  "that contains this tensor",
                                  name));
    };
    for (const auto& [input, tensor] : options.inputs) check("inputs", tensor);
    check("targets", options.targets);
  }

  InputFit fit() const override { return {.normalize = scaling.fitted()}; }
  std::shared_ptr<const Dataset> open(const OpenOptions&) const override {
    TensorsOptions resolved = options;
    resolved.path = path.value_or("");
    resolved.scaling = scaling.options();
    return transform_samples(load_tensors(resolved), changes());
  }
};

}  // namespace

KindRow<DatasetConfig> tensors_row() {
  return {"tensors",
          "Tensors of a safetensors file or .npy files, whose first dimension counts samples",
          make_kind_of<TensorsConfig>};
}

}  // namespace dltrain
