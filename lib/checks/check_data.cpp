// Checks that inputs and targets vary, and that batches contain several classes.
#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "checks/checks_support.h"
#include "data/classes.h"
#include "data/loader.h"

namespace dltrain {
namespace {

constexpr int64_t kCheckDataSamples = 4096;  // looked at
constexpr int64_t kMinInBatch = 8;           // smaller batches may have one class by chance
constexpr int kBatches = 4;
constexpr int64_t kMaxLocations = 1000000;  // of training samples, in memory
constexpr int64_t kCompared = 64;           // samples of the eval split

// Returns whether a field has the same bytes in samples from the whole range of the data.
bool is_constant(const Dataset& data, int field) {
  const size_t bytes = data.fields()[static_cast<size_t>(field)].sample.bytes();
  std::vector<std::byte> first(bytes), other(bytes);
  int64_t sample = 0;
  data.gather(field, {&sample, 1}, first.data());
  const int64_t count = std::min(data.size(), kCheckDataSamples);
  for (int64_t i = 1; i < count; ++i) {
    sample = i * data.size() / count;
    data.gather(field, {&sample, 1}, other.data());
    if (other != first) return false;
  }
  return true;
}

// Returns whether samples from the whole range of the eval split are also training samples: at the
// same place of the files, with the same inputs.
bool is_within(const Dataset& eval, const Dataset& train) {
  if (train.size() > kMaxLocations) return false;
  std::unordered_map<std::string, int64_t> known;
  for (int64_t i = 0; i < train.size(); ++i) known.emplace(train.location_of(i), i);
  const auto hash = [](const Dataset& data, int64_t sample) {
    Hasher hasher;
    data.hash_inputs(sample, hasher);
    return hasher.hex();
  };
  const int64_t count = std::min(eval.size(), kCompared);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t sample = i * eval.size() / count;
    const auto found = known.find(eval.location_of(sample));
    if (found == known.end() || hash(train, found->second) != hash(eval, sample)) return false;
  }
  return true;
}

// Returns what is wrong with the eval split, or an empty text.
std::string error_of_eval(const Session& session) {
  if (!has_one_label(*session.data.train)) return {};
  const DataSplit data = session.experiment->data.open();
  if (!data.eval) return {};
  std::string uneven = imbalanced_classes(*data.train, *data.eval);
  if (!uneven.empty()) return uneven + ": are the samples sorted by class?";
  if (is_within(*data.eval, *data.train)) return "the samples of the eval split are trained on";
  return {};
}

// Returns the number of classes in each of the first micro-batches of the training order.
std::vector<size_t> classes_of_batches(Session& session) {
  LoaderOptions loading = train_loader_options(session, 0, 0);
  TrainLoader loader(session.data.train, loading, session.executor->device());
  const StepGraph& graph = session.executor->training();
  const auto labels = static_cast<size_t>(graph.graph.value(graph.targets()).spec.shape.elements());
  std::vector<size_t> counts;
  for (int i = 0; i < kBatches; ++i) {
    const auto* first = reinterpret_cast<const int32_t*>(loader.next().fields.back());
    counts.push_back(std::set<int32_t>(first, first + labels).size());
  }
  return counts;
}

}  // namespace

CheckResult check_data(const CheckOptions& options, int64_t samples) {
  const auto run = prepare(options, samples, DType::f32);
  Session& session = run->session;
  const Dataset& data = *session.data.train;
  for (int field = 0; field <= data.target_field() && data.size() > 1; ++field) {
    if (!is_constant(data, field)) continue;
    return pass_if(false, "{} is the same in all of {} samples",
                   field == data.target_field() ? "the target"
                                                : data.fields()[static_cast<size_t>(field)].name,
                   std::min(data.size(), kCheckDataSamples));
  }
  if (std::string error = error_of_eval(session); !error.empty()) {
    return pass_if(false, "{}", error);
  }
  const StepGraph& graph = session.executor->training();
  if (graph.graph.value(graph.targets()).spec.dtype != DType::i32 || samples < kMinInBatch) {
    return pass_if(true, "inputs and targets vary");
  }
  const std::vector<size_t> counts = classes_of_batches(session);
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  return pass_if(*most > 1,
                 "inputs and targets vary; the first {} batches of {} have {} to {} classes each{}",
                 kBatches, samples, *least, *most,
                 *most > 1 ? "" : ": the order is sorted, set data.train.shuffle");
}

}  // namespace dltrain
