// Checks that inputs and targets vary, and that batches contain several classes.
#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "checks/checks_support.h"
#include "data/classes.h"
#include "data/inspect.h"
#include "data/loader.h"

namespace dltrain {
namespace {

constexpr int64_t kCheckDataSamples = 4096;  // looked at
constexpr int64_t kMinInBatch = 8;           // smaller batches may have one class by chance
constexpr int kBatches = 4;
constexpr int64_t kCompared = 20000;  // samples of a split, which may be files of images
constexpr double kMostShared = 0.1;   // of the eval split, beyond what is chance

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

// Returns the inputs of samples from the whole range of the data, as `data inspect` compares them.
SplitReport compared(const Dataset& data) {
  SplitReport out;
  out.samples = std::min(data.size(), kCompared);
  for (int64_t i = 0; i < out.samples; ++i) {
    Hasher hasher;
    try {
      data.hash_inputs(i * data.size() / out.samples, hasher);
      out.hashes.push_back(hasher.hex());
    } catch (const Error&) {
      out.hashes.emplace_back();  // a broken image, which other checks report
    }
  }
  return out;
}

// Returns the share of the samples that are equal to another one.
double repeated(const SplitReport& split) {
  std::unordered_map<std::string_view, int64_t> times;
  for (const std::string& hash : split.hashes) ++times[hash];
  const auto count = std::count_if(split.hashes.begin(), split.hashes.end(),
                                   [&](const std::string& hash) { return times[hash] > 1; });
  return static_cast<double>(count) / static_cast<double>(split.samples);
}

// Returns a sentence about samples of the eval split that are trained on, if there are any, and
// whether they are many. Real data repeats samples: a random split has as many of them in both
// parts as there are in one, but for chance.
std::pair<std::string, bool> find_shared(const Dataset& train, const Dataset& eval) {
  const SplitReport of_train = compared(train), of_eval = compared(eval);
  const size_t count = find_overlap(of_train, of_eval).size();
  if (count == 0) return {};
  const auto n = static_cast<double>(of_eval.samples), share = static_cast<double>(count) / n;
  const double looked_at =
      static_cast<double>(of_train.samples) / static_cast<double>(train.size());
  const double most = repeated(of_train) + kMostShared * looked_at;
  const bool all = of_train.samples == train.size() && of_eval.samples == eval.size();
  return {
      fmt::format("{} of {} samples of the eval split are trained on{}", count, of_eval.samples,
                  all ? "" : fmt::format(" (compared with {} training samples)", of_train.samples)),
      share > most + 3 * std::sqrt(std::max(0.0, most * (1 - most)) / n)};
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
  DataSplit split;
  std::string shared;
  const bool is_text = data.fields().back().sample.dtype == DType::i32 && !has_one_label(data);
  if (!is_text) split = session.experiment->data.open();
  if (split.eval) {
    std::string uneven = imbalanced_classes(count_classes(*split.train), count_classes(*split.eval),
                                            split.train->class_names());
    if (!uneven.empty()) {
      return pass_if(
          false, "{}{}", uneven,
          session.experiment->data.splits_randomly() ? "" : ": are the samples sorted by class?");
    }
    const auto [sentence, many] = find_shared(*split.train, *split.eval);
    if (many) return pass_if(false, "{}", sentence);
    if (!sentence.empty()) shared = "; " + sentence + ", which may be chance";
  }
  const StepGraph& graph = session.executor->training();
  if (graph.graph.value(graph.targets()).spec.dtype != DType::i32 || samples < kMinInBatch) {
    return pass_if(true, "inputs and targets vary{}", shared);
  }
  const std::vector<size_t> counts = classes_of_batches(session);
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  return pass_if(*most > 1,
                 "inputs and targets vary; the first {} batches of {} have {} to {} classes each{}",
                 kBatches, samples, *least, *most,
                 *most > 1 ? shared : ": the order is sorted, set data.train.shuffle");
}

}  // namespace dltrain
