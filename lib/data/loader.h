// Loaders return micro-batches in host memory (pinned if the device needs it) that worker threads
// fill ahead of time.
//
// Training: with B samples in the global batch, m in a micro-batch, W ranks and A = B / (m * W)
// micro-batches per step, micro-batch a of rank r has the index g = r * A + a in the global batch
// and at step s the positions [P + (s - S) * B + g * m, + m) of the Sampler's order, where S and P
// are the first step and its first position. The global batch of a step has the same samples in the
// same order for any W and m, and the order does not depend on B: a run can continue with another
// one.
//
// Evaluation: file order, each sample once; ranks alternate by micro-batch, and the last batches
// are padded.
//
// Threads: a loader is used by one thread. next() does not allocate.
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
  int64_t step = 0;           // optimizer step from 0; in evaluation the number of the batch
  int64_t micro = 0;          // a: index of the micro-batch in this rank's step
  int64_t position = 0;       // of its first sample in the order
  int64_t sample_offset = 0;  // of its first sample in the global batch: g * m
  int64_t samples = 0;        // without padding; less than m in evaluation only
  // Number of targets that count and divisor of the mean of the loss
  // (LoaderOptions::target_weights), in training of the global batch, in evaluation of this batch.
  int64_t valid_targets = 0;
  double loss_divisor = 0;
  size_t variant = 0;  // of LoaderOptions::lengths
  // The m rows of each field (see batch_fields) for the variant, aligned to 64 bytes.
  std::vector<std::byte*> fields;
};

struct LoaderOptions {
  int64_t global_batch = 1;  // B; a multiple of micro_batch * world
  int64_t micro_batch = 1;   // m
  int rank = 0;
  int world = 1;
  // The first step of a resumed run, and the position of the first sample of that step.
  int64_t first_step = 0, first_sample = 0;
  SampleOrder order = SampleOrder::shuffled;
  uint64_t seed = 0;
  TargetWeights target_weights = {};  // of the loss
  MixingOptions mixing = {};
  int64_t classes = 0;                                  // of the targets of mixing
  bool sources = false;                                 // the batches have those of the targets
  std::shared_ptr<const LengthPlan> lengths = nullptr;  // null: samples are whole
  int workers = 1;                                      // see PrefetchOptions
  int slots = 4;
  int held = 1;
  FillObserver* observer = nullptr;  // see PrefetchOptions
};

// Returns the fields of the batches of a TrainLoader: those of the dataset; with mixing, the target
// is a distribution, f32 [classes]; with sources, before the target an i32 field of its shape, the
// number of the source. Throws Error(usage) for data that cannot be mixed.
std::vector<FieldSpec> batch_fields(const Dataset& dataset, const LoaderOptions& options);

// Returns the host memory of the batches.
size_t batch_memory_bytes(const std::vector<FieldSpec>& fields, int64_t micro_batch, int slots);

// The memory of `slots` batches.
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

  // Returns the next micro-batch of this rank, without end. It is valid until next() was called
  // `held` more times. Throws the errors of the dataset.
  const Batch& next();

  const std::vector<FieldSpec>& fields() const { return fields_; }  // of its batches
  // Seconds spent waiting for data so far.
  double wait_seconds() const { return prefetcher_->wait_seconds(); }

 private:
  // The state of a worker.
  struct Worker {
    Sampler sampler;
    std::vector<int64_t> chosen;
    std::vector<std::byte> partner;  // one sample of one field, for mixing
    std::vector<std::byte> whole;    // one sample of one field before it is cut
    TargetCounter counter;
  };

  // The position of the first sample of a step's global batch.
  int64_t begin_of(int64_t step) const {
    return options_.first_sample + (step - options_.first_step) * options_.global_batch;
  }
  void fill(int index, int64_t sequence, Batch& batch);
  void fill_rows(Worker& worker, int64_t step, int64_t offset, int64_t row, int64_t count,
                 Batch& batch) const;
  void fill_field(Worker& worker, int field, std::span<const int64_t> chosen,
                  const SampleVisit& first, int64_t row, Batch& batch, size_t variant) const;
  void fill_sources(std::span<const int64_t> chosen, int64_t row, Batch& batch,
                    size_t variant) const;
  void mix_rows(Worker& worker, int64_t step, int64_t offset, int64_t row, int64_t count,
                Batch& batch) const;
  TargetCount count_targets(Worker& worker, int64_t step) const;

  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  int64_t accumulation_;
  std::vector<FieldSpec> fields_;
  BatchMemory memory_;
  std::vector<Worker> workers_;
  int64_t mixed_height_ = 0, mixed_width_ = 0;  // of the inputs, for cutmix
  TargetCount count_;                           // of the current step
  std::unique_ptr<Prefetcher> prefetcher_;      // last: its threads use the rest
};

class EvalLoader {
 public:
  // `samples`: the number of samples from the start of the dataset; all by default.
  EvalLoader(std::shared_ptr<const Dataset> dataset, int64_t micro_batch, int rank, int world,
             Device& device, std::optional<int64_t> samples = {},
             const TargetWeights& target_weights = {}, int workers = 1);

  // Starts a pass at the first sample and drops an unfinished one.
  void start();
  // Returns the next batch, or nullptr after the last. All ranks get the same number of batches.
  // The inputs of padding are zero, its i32 targets kIgnoredLabel and its f32 targets NaN.
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
