// Checks that outputs depend neither on the targets nor on the other samples of the batch: changes
// these and compares outputs bit by bit, in float64 on the reference engine, or for large models in
// f32. Models with batch norm, which combines the samples of a micro-batch in training, are checked
// in evaluation.
//
// Also checks that no input is the target times a factor plus a constant in every sample.
#include <algorithm>
#include <cmath>

#include "checks/checks_support.h"
#include "data/loader.h"

namespace dltrain {
namespace {

constexpr int64_t kCorrelationSamples = 4096;
constexpr int64_t kMinCompared = 16;  // fewer may agree by chance
constexpr double kCorrelation = 0.999999;
constexpr const char* kOutput = "check.output";

void keep_output(GraphBuilder& builder, const StepGraph& graph) {
  const bool low = is_low_precision(builder.spec(graph.output).dtype);
  const ValueId kept =
      low ? builder.emit1("cast", {graph.output}, {{"dtype", std::string(dtype_name(DType::f32))}})
          : builder.emit1("identity", {graph.output});
  builder.accumulate(kept, kOutput, Role::metric);
}

bool mixes_samples_by_design(const StepGraph& graph) {
  return std::ranges::any_of(graph.graph.nodes,
                             [](const Node& node) { return node.op->mixes_samples; });
}

// Targets that differ from those of the batch everywhere.
OneBatch with_other_targets(OneBatch batch, DType dtype, int64_t classes) {
  std::vector<std::byte>& bytes = batch.fields.back();
  if (dtype == DType::i32) {
    auto* labels = reinterpret_cast<int32_t*>(bytes.data());
    for (size_t i = 0; i < bytes.size() / sizeof(int32_t); ++i) {
      if (labels[i] >= 0) labels[i] = static_cast<int32_t>((labels[i] + 1) % classes);
    }
  } else {
    const auto change = [&]<typename T>(T) {
      auto* numbers = reinterpret_cast<T*>(bytes.data());
      for (size_t i = 0; i < bytes.size() / sizeof(T); ++i) numbers[i] = 1 - numbers[i];
    };
    dtype == DType::f64 ? change(double{}) : change(float{});
  }
  return batch;
}

// The absolute correlation of columns with the targets (Pearson's r).
class Correlations {
 public:
  explicit Correlations(size_t columns) : x_(columns), xx_(columns), xt_(columns) {}

  void add(const float* row, double target) {
    n_ += 1;
    t_ += target;
    tt_ += target * target;
    for (size_t i = 0; i < x_.size(); ++i) {
      const double x = row[i];
      x_[i] += x;
      xx_[i] += x * x;
      xt_[i] += x * target;
    }
  }
  double of(size_t i) const {
    const double covariance = xt_[i] - x_[i] * t_ / n_;
    const double spread = (xx_[i] - x_[i] * x_[i] / n_) * (tt_ - t_ * t_ / n_);
    return spread > 0 ? std::abs(covariance) / std::sqrt(spread) : 0;
  }
  double count() const { return n_; }

 private:
  double n_ = 0, t_ = 0, tt_ = 0;
  std::vector<double> x_, xx_, xt_;
};

struct Leak {
  double correlation = 0;
  std::string where;
};

// Returns the input element with the greatest correlation with an element of the target.
Leak strongest_input(const Dataset& data) {
  Leak worst;
  const FieldSpec& target = data.fields().back();
  const auto targets = static_cast<size_t>(target.sample.shape.elements());
  if (targets > 16) return worst;  // sequences and images of targets: not looked at
  std::vector<std::byte> target_bytes(target.sample.bytes());
  for (int field = 0; field < data.target_field(); ++field) {
    const FieldSpec& input = data.fields()[static_cast<size_t>(field)];
    if (input.sample.dtype != DType::f32) continue;
    const auto columns = static_cast<size_t>(input.sample.shape.elements());
    std::vector<Correlations> sums(targets, Correlations(columns));
    std::vector<float> row(columns);
    for (int64_t i = 0; i < std::min(data.size(), kCorrelationSamples); ++i) {
      data.gather(field, {&i, 1}, reinterpret_cast<std::byte*>(row.data()));
      data.gather(data.target_field(), {&i, 1}, target_bytes.data());
      for (size_t t = 0; t < targets; ++t) {
        if (target.sample.dtype == DType::i32) {
          const int32_t label = reinterpret_cast<const int32_t*>(target_bytes.data())[t];
          if (label >= 0) sums[t].add(row.data(), label);
        } else {
          const float number = reinterpret_cast<const float*>(target_bytes.data())[t];
          if (!std::isnan(number)) sums[t].add(row.data(), number);
        }
      }
    }
    const auto schema = data.schema();
    const auto names =
        schema && schema->has_header() ? schema->input_names() : std::vector<std::string>();
    for (size_t t = 0; t < targets; ++t) {
      if (sums[t].count() < static_cast<double>(kMinCompared)) continue;
      for (size_t i = 0; i < columns; ++i) {
        const double r = sums[t].of(i);
        if (r <= worst.correlation) continue;
        const bool is_named = names.size() == columns;
        worst = {r, is_named ? names[i] : fmt::format("element {} of {}", i, input.name)};
      }
    }
  }
  return worst;
}

// The model's output for the batch, in float64. `evaluation`: with running statistics.
std::vector<double> output_of(Session& session, const OneBatch& batch, bool evaluation) {
  if (!evaluation) {
    run_forward(session, batch);
    return read_numbers(*session.executor, kOutput);
  }
  session.executor->evaluate(batch.addresses(), 0, true);
  return session.executor->evaluation_output();
}

}  // namespace

CheckResult check_target_leak(const CheckOptions& options, int64_t samples) {
  const auto run = prepare_forward(options, std::min<int64_t>(samples, 4), options.fewest_samples,
                                   {.probe = keep_output});
  Session& session = run->session;
  Executor& executor = *session.executor;
  const OneBatch batch = first_batch(session);
  run_forward(session, batch);
  const auto before = read_numbers(executor, kOutput);
  const StepGraph& graph = executor.training();
  const int64_t classes = session.experiment->loss->classes(graph.output_spec);
  run_forward(session, with_other_targets(batch, graph.graph.value(graph.targets()).spec.dtype,
                                          std::max<int64_t>(classes, 1)));
  if (before != read_numbers(executor, kOutput)) {
    return pass_if(false, "the model's output changes with the targets");
  }
  const Leak leak = strongest_input(*session.data.train);
  if (leak.correlation >= kCorrelation) {
    return pass_if(
        false, "{} follows the target exactly (correlation {:.7f}): the inputs contain the target",
        leak.where, leak.correlation);
  }
  return pass_if(
      true,
      "outputs do not depend on targets; largest correlation of an input with the target {:.4f}",
      leak.correlation);
}

CheckResult check_sample_independence(const CheckOptions& options, int64_t samples) {
  if (samples < 2) return skipped("micro-batches have one sample");
  const int64_t few = std::min<int64_t>(samples, 4);
  auto run = prepare_forward(options, few, 2, {.probe = keep_output, .start = false});
  const bool evaluation = mixes_samples_by_design(run->session.executor->training());
  if (evaluation) {
    run = prepare_forward(options, few, 2,
                          {.noise = false, .evaluate_train_split = true, .start = false});
  }
  Session& session = run->session;
  start_session(session);
  const OneBatch batch = first_batch(session);
  const auto before = output_of(session, batch, evaluation);
  OneBatch changed = batch;
  const auto rows = static_cast<size_t>(session.batch.micro_batch);
  for (size_t field = 0; field + 1 < changed.fields.size(); ++field) {
    std::vector<std::byte>& bytes = changed.fields[field];
    const size_t row = bytes.size() / rows;
    // Every sample but the first becomes zero: a value that inputs of any kind may have.
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(row), bytes.end(), std::byte{0});
  }
  const auto after = output_of(session, changed, evaluation);
  const size_t own = before.size() / rows;  // elements of the first sample's output
  double largest = 0;
  for (size_t i = 0; i < own; ++i) {
    const double change = std::abs(after[i] - before[i]);
    if (!(change <= largest || std::isnan(largest))) largest = change;
  }
  return pass_if(
      largest == 0,
      "the first sample's output changes by {:g} when the other {} samples become zero{}; expected "
      "0",
      largest, rows - 1,
      evaluation ? " (with the running statistics of batch_norm, as in evaluation)" : "");
}

}  // namespace dltrain
