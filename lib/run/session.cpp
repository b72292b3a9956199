#include "run/session.h"

#include <algorithm>
#include <cmath>

namespace dltrain {

std::string Session::teacher_fingerprint() const {
  std::string out;
  for (const auto& teacher : teachers) out += (out.empty() ? "" : "+") + teacher->fingerprint;
  return out;
}

std::string Session::teacher_checkpoints() const {
  std::string out;
  for (const auto& teacher : teachers) {
    out += (out.empty() ? "" : ", ") + teacher->checkpoint.string();
  }
  return out;
}

// A session in f64 (gradient check) has no 16-bit values to scale for.
bool Session::scales_loss() const {
  return experiment->precision.scales_loss() && options.compute == DType::f32;
}

double Session::first_loss_scale() const {
  return scales_loss() ? experiment->precision.init_scale.value_or(65536) : 1;
}

int64_t Session::scale_growth_interval() const {
  return scales_loss() ? experiment->precision.growth_interval.value_or(2000) : 0;
}

Collectives* Session::evaluation_ranks() const {
  if (mesh.size(mesh_axes::kDataAndPipeline) == 1) return nullptr;
  const std::string over = mesh.over(mesh_axes::kDataAndPipeline);
  return over.empty() ? options.ranks.collectives : &groups->along(over);
}

double Session::step_model_flops() const {
  if (executor->variants() > 1) return 0;
  return executor->training().model_flops * static_cast<double>(batch.micro_steps) /
         coordinates.pipeline.count;
}

std::vector<StepSchedule> Session::schedules() const {
  const int ranks = coordinates.pipeline.count;
  const ParallelismConfig& parallelism = experiment->parallelism;
  if (ranks > 1 && parallelism.pipeline_schedule == PipelineSchedule::interleaved) {
    return interleaved_schedules(batch.micro_steps, ranks,
                                 static_cast<int>(parallelism.virtual_stages));
  }
  const bool gpipe = parallelism.pipeline_schedule == PipelineSchedule::gpipe;
  const bool splits = parallelism.pipeline_schedule == PipelineSchedule::zero_bubble && ranks > 1;
  std::vector<StepSchedule> out;
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t in_flight = ranks == 1 ? options.in_flight
                              : gpipe    ? batch.micro_steps
                                         : ranks - rank;
    out.push_back(step_schedule(batch.micro_steps, std::min(in_flight, batch.micro_steps),
                                splits ? std::optional<int64_t>(rank) : std::nullopt));
  }
  return out;
}

int64_t Session::tokens_of_sample(size_t variant) const {
  const DatasetConfig& train = *experiment->data.train;
  if (!train.has_tokens() && !experiment->model.vocab_size) return 0;
  int64_t tokens = 0;
  const auto& fields = data.train->fields();
  for (size_t i = 0; i + 1 < fields.size(); ++i) {
    // The first input, and of pairs the text that is written beside its source.
    if (i > 0 && fields[i].name != train.next_token_input()) continue;
    const Shape& shape = fields[i].sample.shape;
    if (shape.rank() > 0) tokens += lengths ? lengths->extents()[variant][i] : shape[0];
  }
  return tokens;
}

StepInputs step_inputs(const Session& session, int64_t step, const Batch& batch) {
  const TrainingConfig& training = session.experiment->training;
  return {.seed = static_cast<uint64_t>(session.experiment->seed),
          .step = step,
          .sample_offset = batch.sample_offset,
          .learning_rate = session.learning_rate(step),
          .inverse_valid = batch.loss_divisor > 0 ? 1.0 / batch.loss_divisor : 0.0,
          .max_grad_norm = training.max_grad_norm.value_or(0.0),
          .max_grad_value = training.max_grad_value.value_or(0.0),
          .scale_growth_interval = session.scale_growth_interval()};
}

int64_t Session::last_step_from(const TrainPosition& from) const {
  const TrainingConfig& training = experiment->training;
  if (training.max_steps) return *training.max_steps;
  const double samples = *training.num_epochs * static_cast<double>(data.train->size());
  return from.step + static_cast<int64_t>(std::ceil((samples - static_cast<double>(from.samples)) /
                                                    static_cast<double>(batch.global_batch)));
}

void Session::resume_at(const TrainPosition& from) {
  position = from;
  max_steps = last_step_from(from);
  const SourceMix* mix = data.train->sources();
  const int64_t last = position_at(max_steps).cursor;
  if (mix == nullptr || last <= mix->limit()) return;
  fail_at(experiment->data.train->location,
          "training draws {} samples, but with their max_epochs the sources have only {}; set "
          "training.max_steps to at most {}, or raise max_epochs",
          last, mix->limit(),
          position.step + (mix->limit() - position.cursor) / batch.global_batch);
}

LoaderOptions train_loader_options(const Session& session, int64_t first_step, int workers) {
  const DatasetConfig& data = *session.experiment->data.train;
  return {.global_batch = session.batch.global_batch,
          .micro_batch = session.batch.micro_batch,
          .rank = session.coordinates.data.index,
          .world = session.coordinates.data.count,
          .first_step = first_step,
          .first_sample = session.position_at(first_step).cursor,
          .order = data.order(),
          .seed = static_cast<uint64_t>(session.experiment->seed),
          .target_weights = session.train_targets,
          .mixing = session.options.noise ? data.mixing() : MixingOptions{},
          .classes = session.classes,
          .sources = session.executor->training().has_sources(),
          .lengths = session.lengths,
          .workers = workers,
          .slots = 4,
          .held = 2};
}

int loader_workers(const Session& session, const Dataset& dataset) {
  return session.experiment->data.workers_for(dataset, session.options.ranks.on_this_node());
}

}  // namespace dltrain
