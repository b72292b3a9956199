// Loaders hand out micro-batches that lie ready in host memory (pinned, where the device wants it),
// filled ahead of time by worker threads.
//
// Training: with B samples in the global batch, m in a micro-batch, W ranks and A = B / (m * W)
// micro-batches a step, micro-batch a of rank r has the index g = r * A + a in the global batch and
// holds the positions [s * B + g * m, + m) of the Sampler's order at step s. So the global batch of
// a step is the same samples in the same order whatever W and m are.
//
// Evaluation: file order, each sample once, ranks taking turns by micro-batch; the last batches are
// padded.
//
// Threads: a loader is used by one thread. Nothing is allocated by next().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/dataset.h"
#include "data/length_plan.h"
#include "data/mixing.h"
#include "data/prefetch.h"
#include "data/sampler.h"
#include "data/target_counter.h"
#include "device/device.h"

namespace dltrain {

struct Batch {
  int64_t step = 0;           // optimizer step, from 0; in evaluation the number of the batch
  int64_t micro = 0;          // a: which micro-batch of this rank's step
  int64_t position = 0;       // of its first sample in the order: s * B + g * m
  int64_t sample_offset = 0;  // of its first sample in the global batch: g * m
  int64_t samples = 0;        // that are real; fewer than m only where evaluation pads
  // Targets that count, and the divisor of the loss's mean (LoaderOptions::target_weights).
  // Training: of the whole global batch. Evaluation: of this batch.
  int64_t valid_targets = 0;
  double loss_divisor = 0;
  size_t variant = 0;  // of LoaderOptions::lengths
  // By field (see batch_fields): m rows, aligned to 64 bytes; rows are those of the variant.
  std::vector<std::byte*> fields;
};

struct LoaderOptions {
  int64_t global_batch = 1;  // B; a multiple of micro_batch * world
  int64_t micro_batch = 1;   // m
  int rank = 0;
  int world = 1;
  int64_t first_step = 0;  // where a resumed run goes on
  SampleOrder order = SampleOrder::shuffled;
  uint64_t seed = 0;
  TargetWeights target_weights = {};  // of the loss
  MixingOptions mixing = {};
  int64_t classes = 0;  // of the distributions that mixing makes of labels
  std::shared_ptr<const LengthPlan> lengths = nullptr;  // null: samples are whole
  int workers = 1;                                      // see PrefetchOptions
  int slots = 4;
  int held = 1;
  FillObserver* observer = nullptr;  // see PrefetchOptions
};

// What the batches of a TrainLoader hold: the dataset's fields; where samples are mixed, the target
// is a distribution, f32 [classes]. Throws Error(usage) for data that cannot be mixed.
std::vector<FieldSpec> batch_fields(const Dataset& dataset, const LoaderOptions& options);

// Threads that are worthwhile for a dataset: one for each of the `cores` where reading takes work,
// and one otherwise.
int worthwhile_workers(const Dataset& dataset, int cores);

// What the batches filled ahead take, in host memory.
size_t batch_memory_bytes(const std::vector<FieldSpec>& fields, int64_t micro_batch, int slots);

// Memory for `slots` batches of these fields, and their addresses.
class BatchMemory {
 public:
  BatchMemory(const std::vector<FieldSpec>& fields, int64_t micro_batch, int slots, Device& device);
  std::vector<Batch>& batches() { return batches_; }

 private:
  Buffer buffer_;
  std::vector<Batch> batches_;
};

class TrainLoader {
 public:
  TrainLoader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options, Device& device);

  // The next micro-batch of this rank, without end. Valid until next() was called `held` more
  // times. Passes on errors of the dataset.
  const Batch& next();

  int64_t micro_batches_per_step() const { return accumulation_; }
  const Sampler& sampler() const { return workers_.front().sampler; }
  const Dataset& dataset() const { return *dataset_; }
  const std::vector<FieldSpec>& fields() const { return fields_; }  // of its batches
  // Seconds spent waiting for data so far.
  double wait_seconds() const { return prefetcher_->wait_seconds(); }

 private:
  // What a worker needs for itself.
  struct Worker {
    Sampler sampler;
    std::vector<int64_t> chosen;
    std::vector<std::byte> partner;  // one sample of one field
    std::vector<std::byte> whole;    // likewise, of which a row takes the beginning
    TargetCounter counter;
  };

  void fill(int index, int64_t sequence, Batch& batch);
  void fill_rows(Worker& worker, int64_t position, int64_t row, int64_t count, Batch& batch) const;
  void fill_field(Worker& worker, int field, std::span<const int64_t> chosen, const Visit& first,
                  int64_t row, Batch& batch, size_t variant) const;
  void mix_rows(Worker& worker, int64_t position, int64_t row, int64_t count, Batch& batch) const;
  TargetCount count_targets(Worker& worker, int64_t step) const;

  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  int64_t accumulation_;
  std::vector<FieldSpec> fields_;
  BatchMemory memory_;
  std::vector<Worker> workers_;
  int64_t mixed_height_ = 0, mixed_width_ = 0;  // of the inputs, for cutmix
  TargetCount count_;                           // of the step being handed out
  std::unique_ptr<Prefetcher> prefetcher_;      // last: its threads use the rest
};

class EvalLoader {
 public:
  // `samples`: only the first so many of the dataset; all by default.
  EvalLoader(std::shared_ptr<const Dataset> dataset, int64_t micro_batch, int rank, int world,
             Device& device, std::optional<int64_t> samples = {},
             const TargetWeights& target_weights = {}, int workers = 1);

  // Begins a pass from the first sample; an unfinished one is dropped.
  void start();
  // The next batch; nullptr after the last. All ranks get the same number of batches. Padding has
  // zeros as inputs, kIgnoredLabel as i32 targets and NaN as f32 ones.
  const Batch* next();

  int64_t batches() const { return batches_; }
  int64_t samples() const { return samples_; }

 private:
  void fill(int index, int64_t sequence, Batch& batch);

  std::shared_ptr<const Dataset> dataset_;
  int64_t micro_batch_;
  int rank_, world_;
  int64_t samples_, batches_;
  BatchMemory memory_;
  std::vector<std::vector<int64_t>> chosen_;  // one a worker
  TargetCounter counter_;                     // the first worker's
  std::unique_ptr<Prefetcher> prefetcher_;
};

}  // namespace dltrain
