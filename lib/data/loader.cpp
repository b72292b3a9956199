#include "data/loader.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace dltrain {
namespace {

constexpr size_t kAlignment = 64;

size_t field_bytes(const FieldSpec& field, int64_t rows) {
  const size_t bytes = field.sample.bytes() * static_cast<size_t>(rows);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

size_t batch_bytes(const Dataset& dataset, int64_t rows) {
  size_t bytes = 0;
  for (const FieldSpec& field : dataset.fields()) bytes += field_bytes(field, rows);
  return bytes;
}

int64_t accumulation_of(const LoaderOptions& options) {
  const int64_t at_once = options.micro_batch * options.world;
  check_internal(options.micro_batch >= 1 && options.rank >= 0 && options.rank < options.world &&
                     options.global_batch >= 1 && options.global_batch % at_once == 0,
                 "a global batch of {} in micro-batches of {} on rank {} of {}",
                 options.global_batch, options.micro_batch, options.rank, options.world);
  return options.global_batch / at_once;
}

bool is_f32_input(const Dataset& dataset, int field) {
  return field != dataset.target_field() &&
         dataset.fields()[static_cast<size_t>(field)].sample.dtype == DType::f32;
}

std::vector<RandomAffine> affines_for(const Dataset& dataset, const LoaderOptions& options) {
  std::vector<RandomAffine> affines;
  if (!options.random_affine.active()) return affines;
  for (int field = 0; field < dataset.target_field(); ++field) {
    if (!is_f32_input(dataset, field)) continue;
    const Shape& image = dataset.fields()[static_cast<size_t>(field)].sample.shape;
    affines.emplace_back(options.random_affine, image, options.seed);
  }
  return affines;
}

}  // namespace

BatchMemory::BatchMemory(const Dataset& dataset, int64_t micro_batch, int slots, Device& device)
    : buffer_(device, batch_bytes(dataset, micro_batch) * static_cast<size_t>(slots),
              Memory::pinned_host),
      batches_(static_cast<size_t>(slots)) {
  std::byte* at = buffer_.data();
  for (Batch& batch : batches_) {
    for (const FieldSpec& field : dataset.fields()) {
      batch.fields.push_back(at);
      at += field_bytes(field, micro_batch);
    }
  }
}

TrainLoader::TrainLoader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options,
                         Device& device)
    : dataset_(std::move(dataset)),
      options_(options),
      accumulation_(accumulation_of(options)),
      memory_(*dataset_, options.micro_batch, options.slots, device) {
  const auto workers = static_cast<size_t>(std::max(1, options.workers));
  samplers_.assign(workers, Sampler(dataset_->size(), options.seed, options.shuffle));
  chosen_.assign(workers, std::vector<int64_t>(static_cast<size_t>(options.micro_batch)));
  affines_.assign(workers, affines_for(*dataset_, options));
  counters_.assign(workers, TargetCounter(*dataset_, options.target_weights));
  const PrefetchOptions prefetch{.workers = options.workers,
                                 .slots = options.slots,
                                 .held = options.held,
                                 .first = options.first_step * accumulation_};
  prefetcher_ =
      std::make_unique<Prefetcher>(prefetch, [this](int worker, int64_t sequence, int slot) {
        fill(worker, sequence, memory_.batches()[static_cast<size_t>(slot)]);
      });
}

void TrainLoader::fill(int worker, int64_t sequence, Batch& batch) {
  Sampler& sampler = samplers_[static_cast<size_t>(worker)];
  std::vector<int64_t>& chosen = chosen_[static_cast<size_t>(worker)];
  batch.step = sequence / accumulation_;
  batch.micro = sequence % accumulation_;
  batch.sample_offset = (options_.rank * accumulation_ + batch.micro) * options_.micro_batch;
  batch.position = batch.step * options_.global_batch + batch.sample_offset;
  batch.samples = options_.micro_batch;
  for (size_t i = 0; i < chosen.size(); ++i) {
    chosen[i] = sampler.index(batch.position + static_cast<int64_t>(i));
  }
  for (size_t field = 0; field < batch.fields.size(); ++field) {
    dataset_->gather(static_cast<int>(field), chosen, batch.fields[field]);
  }
  change_images(affines_[static_cast<size_t>(worker)], batch);
  TargetCounter& counter = counters_[static_cast<size_t>(worker)];
  const auto uniform = counter.uniform(options_.global_batch);
  TargetCount count = uniform.value_or(TargetCount{});
  if (!uniform && batch.micro == 0) {
    for (int64_t i = 0; i < options_.global_batch; ++i) {
      counter.add(sampler.index(batch.step * options_.global_batch + i), count);
    }
  }
  batch.valid_targets = count.valid;
  batch.loss_divisor = count.divisor;
}

void TrainLoader::change_images(std::vector<RandomAffine>& affines, Batch& batch) const {
  int field = 0;
  for (RandomAffine& affine : affines) {
    while (!is_f32_input(*dataset_, field)) ++field;
    const Shape& image = dataset_->fields()[static_cast<size_t>(field)].sample.shape;
    auto* images = reinterpret_cast<float*>(batch.fields[static_cast<size_t>(field)]);
    for (int64_t i = 0; i < batch.samples; ++i) {
      affine.apply(batch.position + i, images + i * image.elements());
    }
    ++field;
  }
}

const Batch& TrainLoader::next() {
  Batch& batch = memory_.batches()[static_cast<size_t>(prefetcher_->next())];
  // Counted once a step; the later micro-batches take it over.
  if (batch.micro == 0) count_ = {batch.valid_targets, batch.loss_divisor};
  batch.valid_targets = count_.valid;
  batch.loss_divisor = count_.divisor;
  return batch;
}

EvalLoader::EvalLoader(std::shared_ptr<const Dataset> dataset, int64_t micro_batch, int rank,
                       int world, Device& device, std::optional<int64_t> samples,
                       const TargetWeights& target_weights)
    : dataset_(std::move(dataset)),
      micro_batch_(micro_batch),
      rank_(rank),
      world_(world),
      samples_(std::min(samples.value_or(dataset_->size()), dataset_->size())),
      batches_((samples_ + micro_batch * world - 1) / (micro_batch * world)),
      memory_(*dataset_, micro_batch, PrefetchOptions{}.slots, device),
      chosen_(static_cast<size_t>(micro_batch)),
      counter_(*dataset_, target_weights) {}

void EvalLoader::start() {
  prefetcher_.reset();
  prefetcher_ = std::make_unique<Prefetcher>(
      PrefetchOptions{.last = batches_}, [this](int, int64_t sequence, int slot) {
        fill(sequence, memory_.batches()[static_cast<size_t>(slot)]);
      });
}

void EvalLoader::fill(int64_t sequence, Batch& batch) {
  batch.step = sequence;
  batch.micro = 0;
  batch.sample_offset = rank_ * micro_batch_;
  batch.position = sequence * micro_batch_ * world_ + batch.sample_offset;
  batch.samples = std::clamp<int64_t>(samples_ - batch.position, 0, micro_batch_);
  const std::span<int64_t> chosen(chosen_.data(), static_cast<size_t>(batch.samples));
  std::iota(chosen.begin(), chosen.end(), batch.position);
  for (size_t i = 0; i < batch.fields.size(); ++i) {
    const TensorSpec& sample = dataset_->fields()[i].sample;
    dataset_->gather(static_cast<int>(i), chosen, batch.fields[i]);
    std::byte* padding = batch.fields[i] + chosen.size() * sample.bytes();
    const size_t rows = static_cast<size_t>(micro_batch_ - batch.samples);
    const size_t values = rows * static_cast<size_t>(sample.shape.elements());
    if (static_cast<int>(i) != dataset_->target_field()) {
      std::memset(padding, 0, rows * sample.bytes());
    } else if (sample.dtype == DType::i32) {
      std::fill_n(reinterpret_cast<int32_t*>(padding), values, kIgnoredLabel);
    } else {
      std::fill_n(reinterpret_cast<float*>(padding), values,
                  std::numeric_limits<float>::quiet_NaN());
    }
  }
  TargetCount count;
  for (int64_t sample : chosen) counter_.add(sample, count);
  batch.valid_targets = count.valid;
  batch.loss_divisor = count.divisor;
}

const Batch* EvalLoader::next() {
  if (!prefetcher_) start();
  const int slot = prefetcher_->next();
  if (slot >= 0) return &memory_.batches()[static_cast<size_t>(slot)];
  prefetcher_.reset();
  return nullptr;
}

}  // namespace dltrain
