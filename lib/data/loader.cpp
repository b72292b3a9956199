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

int64_t accumulation_of(const LoaderOptions& options) {
  const int64_t at_once = options.micro_batch * options.world;
  check_internal(options.micro_batch >= 1 && options.rank >= 0 && options.rank < options.world &&
                     options.global_batch >= 1 && options.global_batch % at_once == 0,
                 "a global batch of {} in micro-batches of {} on rank {} of {}",
                 options.global_batch, options.micro_batch, options.rank, options.world);
  return options.global_batch / at_once;
}

struct Rows {
  int64_t first, count;
};

// Returns the rows of a batch that worker `index` of `workers` fills.
Rows rows_of_loader(int index, int workers, int64_t rows) {
  const int64_t n = std::max(1, workers);
  const int64_t first = rows * index / n;
  return {first, rows * (index + 1) / n - first};
}

}  // namespace

std::vector<FieldSpec> batch_fields(const Dataset& dataset, const LoaderOptions& options) {
  std::vector<FieldSpec> fields = dataset.fields();
  if (options.sources) {
    const TensorSpec sources{fields.back().sample.shape, DType::i32};
    fields.insert(fields.end() - 1, {"sources", sources});
  }
  if (!options.mixing.active()) return fields;
  const TensorSpec& target = fields.back().sample;
  if (target.dtype != DType::i32 || target.shape.elements() != 1 ||
      dataset.uniform_valid_targets() != 1) {
    fail(ExitCode::usage,
         "mixup and cutmix need one label a sample, none of them ignored; targets are {}",
         to_string(target));
  }
  for (int field = 0; field < dataset.target_field(); ++field) {
    const FieldSpec& spec = fields[static_cast<size_t>(field)];
    const int rank = spec.sample.shape.rank();
    if (spec.sample.dtype != DType::f32) {
      fail(ExitCode::usage, "mixup and cutmix blend f32 inputs; '{}' is {}", spec.name,
           to_string(spec.sample));
    }
    if (options.mixing.cutmix.alpha > 0 && rank != 2 && rank != 3) {
      fail(ExitCode::usage, "cutmix needs images; samples of '{}' are {}", spec.name,
           to_string(spec.sample));
    }
  }
  fields.back().sample = {Shape{options.classes}, DType::f32};
  return fields;
}

size_t batch_memory_bytes(const std::vector<FieldSpec>& fields, int64_t micro_batch, int slots) {
  size_t bytes = 0;
  for (const FieldSpec& field : fields) bytes += field_bytes(field, micro_batch);
  return bytes * static_cast<size_t>(slots);
}

BatchMemory::BatchMemory(const std::vector<FieldSpec>& fields, int64_t micro_batch, int slots,
                         Device& device)
    : buffer_(device, batch_memory_bytes(fields, micro_batch, slots), Memory::pinned_host),
      batches_(static_cast<size_t>(slots)) {
  std::byte* at = buffer_.data();
  for (Batch& batch : batches_) {
    for (const FieldSpec& field : fields) {
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
      fields_(batch_fields(*dataset_, options)),
      memory_(fields_, options.micro_batch, options.slots, device) {
  const auto rows = static_cast<size_t>(options.micro_batch);
  size_t largest = 0;
  for (const FieldSpec& field : dataset_->fields()) {
    largest = std::max(largest, field.sample.bytes());
  }
  std::shared_ptr<const ClassLists> classes;
  if (options.order == SampleOrder::balanced) {
    classes = std::make_shared<const ClassLists>(samples_by_class(*dataset_));
  }
  const Buckets* buckets = options.lengths ? options.lengths->buckets() : nullptr;
  for (int i = 0; i < std::max(1, options.workers); ++i) {
    workers_.push_back({.sampler = Sampler(dataset_->size(), options.seed, options.order, classes,
                                           buckets, dataset_->sources()),
                        .chosen = std::vector<int64_t>(rows),
                        .partner = std::vector<std::byte>(options.mixing.active() ? largest : 0),
                        .whole = std::vector<std::byte>(options.lengths ? largest : 0),
                        .counter = TargetCounter(*dataset_, options.target_weights)});
  }
  if (options.mixing.cutmix.alpha > 0) {
    mixed_height_ = fields_[0].sample.shape[0];
    mixed_width_ = fields_[0].sample.shape[1];
  }
  const PrefetchOptions prefetch{.workers = options.workers,
                                 .slots = options.slots,
                                 .held = options.held,
                                 .first = options.first_step * accumulation_,
                                 .observer = options.observer};
  prefetcher_ =
      std::make_unique<Prefetcher>(prefetch, [this](int worker, int64_t sequence, int slot) {
        fill(worker, sequence, memory_.batches()[static_cast<size_t>(slot)]);
      });
}

void TrainLoader::fill(int index, int64_t sequence, Batch& batch) {
  Worker& worker = workers_[static_cast<size_t>(index)];
  const int64_t step = sequence / accumulation_, micro = sequence % accumulation_;
  const int64_t offset = (options_.rank * accumulation_ + micro) * options_.micro_batch;
  const Rows rows = rows_of_loader(index, options_.workers, options_.micro_batch);
  fill_rows(worker, step, offset, rows.first, rows.count, batch);
  if (index != 0) return;
  batch.step = step;
  batch.micro = micro;
  batch.sample_offset = offset;
  batch.position = begin_of(step) + offset;
  batch.samples = options_.micro_batch;
  batch.variant = options_.lengths ? options_.lengths->variant(step) : 0;
  if (micro != 0) return;
  // The count is computed once per step; next() copies it to the later micro-batches.
  const TargetCount count = count_targets(worker, step);
  batch.valid_targets = count.valid;
  batch.loss_divisor = count.divisor;
}

TargetCount TrainLoader::count_targets(Worker& worker, int64_t step) const {
  if (options_.lengths && options_.lengths->cuts_targets()) {
    const int64_t each = options_.lengths->extents()[options_.lengths->variant(step)].back();
    const int64_t valid = each * options_.global_batch;
    return {valid, static_cast<double>(valid) * options_.target_weights.each};
  }
  if (const auto uniform = worker.counter.uniform(options_.global_batch)) return *uniform;
  TargetCount count;
  for (int64_t i = 0; i < options_.global_batch; ++i) {
    const SampleVisit visit{options_.seed, begin_of(step) + i};
    worker.counter.add(worker.sampler.index(visit.position), &visit, count);
  }
  return count;
}

// Fills rows [row, row + count) of the micro-batch that begins at `offset` in a step's global
// batch.
void TrainLoader::fill_rows(Worker& worker, int64_t step, int64_t offset, int64_t row,
                            int64_t count, Batch& batch) const {
  if (count == 0) return;
  const int64_t position = begin_of(step) + offset;
  const std::span<int64_t> chosen(worker.chosen.data(), static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    chosen[static_cast<size_t>(i)] = worker.sampler.index(position + row + i);
  }
  const SampleVisit first{options_.seed, position + row};
  const bool mixed = options_.mixing.active();
  const int inputs = dataset_->target_field();
  const size_t variant = options_.lengths ? options_.lengths->variant(step) : 0;
  for (int field = 0; field < inputs + (mixed ? 0 : 1); ++field) {
    fill_field(worker, field, chosen, first, row, batch, variant);
  }
  if (options_.sources) fill_sources(chosen, row, batch, variant);
  if (mixed) mix_rows(worker, step, offset, row, count, batch);
}

void TrainLoader::fill_sources(std::span<const int64_t> chosen, int64_t row, Batch& batch,
                               size_t variant) const {
  const size_t field = fields_.size() - 2;
  const Shape& sample = fields_[field].sample.shape;
  int64_t each = sample.elements();
  if (options_.lengths && sample.rank() > 0) {
    each = each / sample[0] * options_.lengths->extents()[variant].back();
  }
  const SourceMix* mix = dataset_->sources();
  auto* out = reinterpret_cast<int32_t*>(batch.fields[field]) + row * each;
  for (const int64_t number : chosen) {
    out = std::fill_n(out, each, mix ? static_cast<int32_t>(mix->source_of(number)) : 0);
  }
}

void TrainLoader::fill_field(Worker& worker, int field, std::span<const int64_t> chosen,
                             const SampleVisit& first, int64_t row, Batch& batch,
                             size_t variant) const {
  const bool target = field == dataset_->target_field();
  const size_t slot = target ? fields_.size() - 1 : static_cast<size_t>(field);
  const TensorSpec& sample = fields_[slot].sample;
  const int64_t whole = sample.shape.rank() == 0 ? 0 : sample.shape[0];
  const int64_t extent =
      options_.lengths ? options_.lengths->extents()[variant][static_cast<size_t>(field)] : whole;
  if (whole == 0 || extent == whole) {
    std::byte* out = batch.fields[slot] + static_cast<size_t>(row) * sample.bytes();
    dataset_->gather_training(field, chosen, first, out);
    return;
  }
  const size_t bytes = sample.bytes() / static_cast<size_t>(whole) * static_cast<size_t>(extent);
  std::byte* out = batch.fields[slot] + static_cast<size_t>(row) * bytes;
  for (size_t i = 0; i < chosen.size(); ++i, out += bytes) {
    const SampleVisit visit{first.seed, first.position + static_cast<int64_t>(i)};
    dataset_->gather_training(field, chosen.subspan(i, 1), visit, worker.whole.data());
    std::memcpy(out, worker.whole.data(), bytes);
  }
}

// Mixes each row with the next one, which is not mixed yet; reads the last row's partner again.
void TrainLoader::mix_rows(Worker& worker, int64_t step, int64_t offset, int64_t row, int64_t count,
                           Batch& batch) const {
  const int64_t begin = begin_of(step), position = begin + offset;
  const int64_t partner_position = begin + (offset + row + count) % options_.global_batch;
  const int64_t partner = worker.sampler.index(partner_position);
  const auto mix_of = [&](int64_t i) {
    return draw_mix(options_.mixing, options_.seed, position + row + i, mixed_height_,
                    mixed_width_);
  };
  for (int field = 0; field < dataset_->target_field(); ++field) {
    const TensorSpec& sample = fields_[static_cast<size_t>(field)].sample;
    const int64_t elements = sample.shape.elements();
    dataset_->gather_training(field, {&partner, 1}, {options_.seed, partner_position},
                              worker.partner.data());
    auto* values = reinterpret_cast<float*>(batch.fields[static_cast<size_t>(field)]);
    values += row * elements;
    for (int64_t i = 0; i < count; ++i, values += elements) {
      const float* other =
          i + 1 < count ? values + elements : reinterpret_cast<const float*>(worker.partner.data());
      mix_values(mix_of(i), sample.shape, other, values);
    }
  }
  const auto label_of = [&](int64_t sample) {
    int32_t label = 0;
    dataset_->gather(dataset_->target_field(), {&sample, 1}, reinterpret_cast<std::byte*>(&label));
    return label;
  };
  auto* targets = reinterpret_cast<float*>(batch.fields.back()) + row * options_.classes;
  int32_t label = label_of(worker.chosen[0]);
  for (int64_t i = 0; i < count; ++i, targets += options_.classes) {
    const int32_t other =
        label_of(i + 1 < count ? worker.chosen[static_cast<size_t>(i + 1)] : partner);
    mix_targets(mix_of(i), label, other, options_.classes, targets);
    label = other;
  }
}

const Batch& TrainLoader::next() {
  Batch& batch = memory_.batches()[static_cast<size_t>(prefetcher_->next())];
  if (batch.micro == 0) count_ = {batch.valid_targets, batch.loss_divisor};
  batch.valid_targets = count_.valid;
  batch.loss_divisor = count_.divisor;
  return batch;
}

EvalLoader::EvalLoader(std::shared_ptr<const Dataset> dataset, int64_t micro_batch, int rank,
                       int world, Device& device, std::optional<int64_t> samples,
                       const TargetWeights& target_weights, int workers)
    : dataset_(std::move(dataset)),
      micro_batch_(micro_batch),
      rank_(rank),
      world_(world),
      samples_(std::min(samples.value_or(dataset_->size()), dataset_->size())),
      batches_((samples_ + micro_batch * world - 1) / (micro_batch * world)),
      memory_(dataset_->fields(), micro_batch, PrefetchOptions{}.slots, device),
      chosen_(static_cast<size_t>(std::max(1, workers)),
              std::vector<int64_t>(static_cast<size_t>(micro_batch))),
      counter_(*dataset_, target_weights) {}

void EvalLoader::start() {
  prefetcher_.reset();
  prefetcher_ = std::make_unique<Prefetcher>(
      PrefetchOptions{.workers = static_cast<int>(chosen_.size()), .last = batches_},
      [this](int worker, int64_t sequence, int slot) {
        fill(worker, sequence, memory_.batches()[static_cast<size_t>(slot)]);
      });
}

void EvalLoader::fill(int index, int64_t sequence, Batch& batch) {
  const int64_t offset = rank_ * micro_batch_;
  const int64_t position = sequence * micro_batch_ * world_ + offset;
  const int64_t real = std::clamp<int64_t>(samples_ - position, 0, micro_batch_);
  const Rows rows = rows_of_loader(index, static_cast<int>(chosen_.size()), micro_batch_);
  const int64_t filled = std::clamp<int64_t>(real - rows.first, 0, rows.count);
  const std::span<int64_t> chosen(chosen_[static_cast<size_t>(index)].data(),
                                  static_cast<size_t>(filled));
  std::iota(chosen.begin(), chosen.end(), position + rows.first);
  for (size_t i = 0; i < batch.fields.size(); ++i) {
    const TensorSpec& sample = dataset_->fields()[i].sample;
    std::byte* out = batch.fields[i] + static_cast<size_t>(rows.first) * sample.bytes();
    dataset_->gather(static_cast<int>(i), chosen, out);
    std::byte* padding = out + chosen.size() * sample.bytes();
    const auto padded = static_cast<size_t>((rows.count - filled) * sample.shape.elements());
    if (static_cast<int>(i) != dataset_->target_field()) {
      std::memset(padding, 0, padded * dtype_size(sample.dtype));
    } else if (sample.dtype == DType::i32) {
      std::fill_n(reinterpret_cast<int32_t*>(padding), padded, kIgnoredLabel);
    } else {
      std::fill_n(reinterpret_cast<float*>(padding), padded,
                  std::numeric_limits<float>::quiet_NaN());
    }
  }
  if (index != 0) return;
  batch.step = sequence;
  batch.sample_offset = offset;
  batch.position = position;
  batch.samples = real;
  TargetCount count;
  for (int64_t i = 0; i < real; ++i) counter_.add(position + i, nullptr, count);
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
