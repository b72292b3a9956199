#include "data/tensors.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "data/config.h"
#include "data/f32_rounding.h"
#include "data/memory_dataset.h"
#include "data/scaling_config.h"
#include "tensor/low_precision.h"
#include "tensor/npy.h"
#include "tensor/safetensors.h"

namespace dltrain {
namespace {

template <typename T>
T read_as(const std::byte* data, int64_t i) {
  T value;
  std::memcpy(&value, data + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

// Calls use(reader), where reader(i) is element i as a double or an int64_t.
template <typename Use>
void with_reader(DType dtype, const std::byte* data, const Use& use) {
  switch (dtype) {
    case DType::f32:
      return use([=](int64_t i) { return double{read_as<float>(data, i)}; });
    case DType::f64:
      return use([=](int64_t i) { return read_as<double>(data, i); });
    case DType::bf16:
      return use([=](int64_t i) { return double{to_f32(read_as<Bf16>(data, i))}; });
    case DType::f16:
      return use([=](int64_t i) { return double{to_f32(read_as<F16>(data, i))}; });
    case DType::i32:
      return use([=](int64_t i) { return int64_t{read_as<int32_t>(data, i)}; });
    case DType::i64:
      return use([=](int64_t i) { return read_as<int64_t>(data, i); });
    case DType::u8:
    case DType::boolean:
      return use([=](int64_t i) { return int64_t{read_as<uint8_t>(data, i)}; });
    case DType::i8:
      return use([=](int64_t i) { return int64_t{read_as<int8_t>(data, i)}; });
    case DType::u16:
      return use([=](int64_t i) { return int64_t{read_as<uint16_t>(data, i)}; });
  }
}

// One tensor of either kind of file.
struct Tensor {
  std::string name;
  TensorSpec spec;
  std::span<const std::byte> data;
  std::string file;
};

class TensorsLoader {
 public:
  explicit TensorsLoader(const TensorsOptions& options) : options_(options) {
    if (!options.path.empty()) file_.emplace(options.path, ExitCode::data);
  }

  std::shared_ptr<const Dataset> load() {
    std::vector<Tensor> tensors;
    for (const auto& [field, tensor] : options_.inputs) tensors.push_back(find(tensor));
    const bool has_targets = !options_.targets.empty();
    if (has_targets) tensors.push_back(find(options_.targets));
    uint64_t bytes = 0;
    for (const Tensor& tensor : tensors) {
      check_samples(tensor, tensors[0]);
      bytes += static_cast<uint64_t>(tensor.spec.shape.elements()) * sizeof(float);
    }
    check_fits_memory(bytes, tensors[0].file);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const bool is_target = i == options_.inputs.size();
      add(is_target ? kTargetField : options_.inputs[i].first, tensors[i], is_target);
    }
    auto location = [path = tensors[0].file](int64_t sample) {
      return fmt::format("{}, sample {}", path, sample);
    };
    if (!has_targets) {
      fields_.push_back({kTargetField, {Shape{}, DType::i32}});
      values_.emplace_back(
          std::vector<int32_t>(static_cast<size_t>(tensors[0].spec.shape[0]), kIgnoredLabel));
    }
    MemoryFacts facts;
    const bool labels = fields_.back().sample.dtype == DType::i32;
    if (has_targets && labels) facts.label_bound = options_.classes.value_or(0);
    auto dataset = std::make_shared<MemoryDataset>(std::move(fields_), std::move(values_),
                                                   std::move(location), std::move(facts));
    return has_targets ? std::shared_ptr<const Dataset>(dataset) : without_targets(dataset);
  }

 private:
  Tensor find(const std::string& name) {
    if (!file_) {
      const NpyFile& array = *arrays_.emplace_back(std::make_unique<NpyFile>(name, ExitCode::data));
      return {name, array.spec(), array.data(), name};
    }
    const SafetensorsEntry& entry = file_->at(name);
    return {name, entry.spec, file_->data(entry), options_.path};
  }

  [[noreturn]] void refuse(const Tensor& entry, const std::string& message) const {
    throw Error(ExitCode::data,
                fmt::format("tensor '{}' {} {}", entry.name, to_string(entry.spec), message),
                entry.file);
  }

  [[noreturn]] void refuse_element(const Tensor& entry, int64_t element,
                                   const std::string& message) const {
    const int64_t row = entry.spec.shape.elements(1, entry.spec.shape.rank());
    throw Error(ExitCode::data, message,
                fmt::format("{}, sample {} (tensor '{}', element {} of the sample)", entry.file,
                            element / row, entry.name, element % row));
  }

  void check_samples(const Tensor& entry, const Tensor& first) const {
    const Shape& shape = entry.spec.shape;
    if (shape.rank() < 1) refuse(entry, "has no dimension for the samples");
    if (shape.elements() == 0) refuse(entry, "is empty");
    if (shape[0] != first.spec.shape[0]) {
      refuse(entry,
             fmt::format("has {} samples, '{}' has {}", shape[0], first.name, first.spec.shape[0]));
    }
  }

  void add(const std::string& field, const Tensor& entry, bool is_target) {
    const Shape& shape = entry.spec.shape;
    const Shape sample(shape.dims().subspan(1));
    const bool as_number =
        is_floating(entry.spec.dtype) ||
        (!is_target && (entry.spec.dtype == DType::u8 || entry.spec.dtype == DType::boolean));
    const std::byte* data = entry.data.data();
    fields_.push_back({field, {sample, as_number ? DType::f32 : DType::i32}});
    with_reader(entry.spec.dtype, data, [&](const auto& at) {
      if (as_number) {
        values_.emplace_back(read_numbers(entry, at, is_target));
      } else {
        values_.emplace_back(read_integers(entry, at, is_target));
      }
    });
  }

  template <typename Reader>
  std::vector<float> read_numbers(const Tensor& entry, const Reader& at, bool is_target) const {
    const Shape& shape = entry.spec.shape;
    const int64_t row = shape.elements(1, shape.rank());
    const int64_t channels = shape.rank() > 1 ? shape[-1] : 1;
    const Scaler scaler(is_target ? Scaling{} : options_.scaling, channels);
    std::vector<F32Rounding> rounding(
        static_cast<size_t>(entry.spec.dtype == DType::f64 ? channels : 0));
    std::vector<float> values(static_cast<size_t>(shape.elements()));
    for (int64_t i = 0; i < shape.elements(); ++i) {
      const float value = scaler(static_cast<double>(at(i)), i % row);
      if (!std::isfinite(value)) {
        refuse_element(entry, i, fmt::format("{} is not a finite f32", at(i)));
      }
      values[static_cast<size_t>(i)] = value;
      if (rounding.empty()) continue;
      rounding[static_cast<size_t>(i % channels)].add(
          scaler.exact(static_cast<double>(at(i)), i % row));
    }
    for (size_t c = 0; c < rounding.size(); ++c) {
      rounding[c].warn(fmt::format("{}: tensor '{}', column {}", entry.file, entry.name, c));
    }
    return values;
  }

  template <typename Reader>
  std::vector<int32_t> read_integers(const Tensor& entry, const Reader& at, bool is_target) const {
    constexpr int64_t kHighest = std::numeric_limits<int32_t>::max() - 1;
    const int64_t highest =
        is_target && options_.classes ? std::min(*options_.classes - 1, kHighest) : kHighest;
    std::vector<int32_t> values(static_cast<size_t>(entry.spec.shape.elements()));
    for (int64_t i = 0; i < entry.spec.shape.elements(); ++i) {
      const auto value = static_cast<int64_t>(at(i));
      if (value > highest || (value < 0 && !(is_target && value == kIgnoredLabel))) {
        refuse_element(entry, i,
                       fmt::format("{} {} is out of range 0 to {}{}", is_target ? "label" : "index",
                                   value, highest,
                                   is_target ? ""
                                             : " (integers are ids for an embedding; save them as "
                                               "float32 to use them as numbers)"));
      }
      values[static_cast<size_t>(i)] = static_cast<int32_t>(value);
    }
    return values;
  }

  const TensorsOptions& options_;
  std::optional<SafetensorsFile> file_;
  std::vector<std::unique_ptr<NpyFile>> arrays_;
  std::vector<FieldSpec> fields_;
  std::vector<FieldValues> values_;
};

constexpr const char* kNoTargets = "none";

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
                .scalar_ok = true,
                .is_path = !path});
    f.text(
        "targets", options.targets,
        {.doc = "Tensor, or .npy file, with the targets; -100 in integers is ignored. none: there "
                "are none (predict)",
         .is_path = !path && options.targets != kNoTargets,
         .known_as = {"target", "labels"}});
    f.integer(
        "classes", options.classes,
        {.doc = "Number of classes: labels must be below this. Absent: the largest label plus one",
         .min = 1,
         .known_as = {"num_classes"}});
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
    if (options.targets != kNoTargets) check("targets", options.targets);
  }

  InputFit fit() const override { return scaling.fit(); }
  std::shared_ptr<const Dataset> open(const OpenOptions& how) const override {
    TensorsOptions resolved = options;
    resolved.path = path.value_or("");
    const bool lacks = !how.targets && path &&
                       SafetensorsFile(*path, ExitCode::data).find(options.targets) == nullptr;
    if (lacks || options.targets == kNoTargets) resolved.targets.clear();
    resolved.scaling = scaling.options();
    return transform_samples(load_tensors(resolved), changes());
  }
};

}  // namespace

std::shared_ptr<const Dataset> load_tensors(const TensorsOptions& options) {
  return TensorsLoader(options).load();
}

KindRow<DatasetConfig> tensors_row() {
  return {"tensors",
          "Tensors of a safetensors file or .npy files, whose first dimension counts samples",
          make_kind_of<TensorsConfig>};
}

}  // namespace dltrain
