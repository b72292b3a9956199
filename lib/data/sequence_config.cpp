#include "data/sequence_config.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "data/token_windows.h"

namespace dltrain {

void CurriculumConfig::describe(Fields& f) {
  f.integer("from", options.from,
            {.doc = "Tokens of the first steps",
             .required = true,
             .min = 1,
             .max = 1 << 24,
             .known_as = {"min_difficulty", "start"}});
  f.integer("steps", options.steps,
            {.doc = "Steps after which sequences have sequence_length tokens",
             .required = true,
             .min = 1,
             .max = 1e15,
             .known_as = {"total_curriculum_step", "num_steps"}});
  f.integer(
      "stages", options.stages,
      {.doc = "Number of lengths including the first and the last; each has its own plan, made "
              "before the first step",
       .min = 2,
       .max = 64});
}

void SequenceConfig::describe_path(Fields& f, const std::string& doc, const char* known_as) {
  f.texts("path", path,
          {.doc = doc,
           .required = true,
           .min_size = 1,
           .scalar_ok = true,
           .is_path = true,
           .known_as = {"file", "files", known_as}});
}

void SequenceConfig::describe_tokenizer(Fields& f) {
  f.one_of("tokenizer", tokenizer, tokenizer_table(),
           {.doc = "How text is converted to tokens", .required = true});
}

void SequenceConfig::describe(Fields& f) {
  f.integer("sequence_length", sequence_length,
            {.doc = "Tokens of a sample",
             .required = true,
             .min = 1,
             .max = 1 << 24,
             .known_as = {"block_size", "seq_length", "max_seq_len", "context_length", "seq_len"}});
  f.section("curriculum", curriculum,
            {.doc = "Training begins with the first tokens of each sample, which makes steps "
                    "shorter; their number grows evenly (Li et al. 2022). Evaluation uses whole "
                    "samples",
             .known_as = {"curriculum_learning", "sequence_length_warmup"}});
  f.boolean(
      "random_offset", random_offset,
      {.doc = "Training shifts the borders between samples by a different number of tokens in "
              "each epoch; otherwise all epochs have the same borders"});
  f.number(
      "mlm_probability", mlm_probability,
      {.doc = "Masked language modelling: the share of the tokens that are masked and that the "
              "loss counts (BERT: 0.15); if absent, each token's target is the next one",
       .max = 1,
       .above = 0});
  f.integer("mask_token_id", mask_token_id,
            {.doc = "The token that masks others; if absent, the tokenizer's <mask> or [MASK]",
             .min = 0,
             .max = INT32_MAX});
  DatasetConfig::describe(f);
}

void SequenceConfig::validate(Diagnostics& diagnostics) const {
  DatasetConfig::validate(diagnostics);
  const auto refuse = [&](bool given, const char* key) {
    if (given) diagnostics.add(*this, key, fmt::format("{} is for images, not for text", key));
  };
  refuse(mixup.has_value(), "mixup");
  refuse(cutmix.has_value(), "cutmix");
  refuse(random_affine.has_value(), "random_affine");
  refuse(!transforms.empty(), "transforms");
  if (mask_token_id && !mlm_probability) {
    diagnostics.add(*this, "mask_token_id", "mask_token_id needs mlm_probability");
  }
  if (!curriculum) return;
  if (curriculum->options.from >= sequence_length) {
    diagnostics.add(*curriculum, "from",
                    fmt::format("from must be below sequence_length ({})", sequence_length));
  }
  if (mlm_probability) {
    diagnostics.add(
        *this, "curriculum",
        "a curriculum cannot be combined with mlm_probability, which masks whole samples");
  }
  if (sampling == Sampling::streams) {
    diagnostics.add(
        *this, "curriculum",
        "a curriculum leaves tokens out, but streams are contiguous; remove one of them");
  }
}

std::shared_ptr<const Dataset> SequenceConfig::masked(
    std::shared_ptr<const Dataset> windows) const {
  if (!mlm_probability) return windows;
  const auto tokenizer = windows->tokenizer();
  const SpecialTokens special = tokenizer ? tokenizer->special() : SpecialTokens{};
  if (!mask_token_id && !special.mask) {
    throw Error(
        ExitCode::data,
        "mlm_probability needs a mask token: a tokenizer that has <mask> or [MASK] (char and "
        "byte: special_tokens: [<mask>]), or mask_token_id",
        name());
  }
  const int64_t mask = mask_token_id ? *mask_token_id : *special.mask;
  if (mask >= windows->label_bound()) {
    throw Error(ExitCode::data,
                fmt::format("mask_token_id {} is not in the vocabulary (0 to {})", mask,
                            windows->label_bound() - 1),
                name());
  }
  return mask_tokens(std::move(windows), {.probability = *mlm_probability,
                                          .mask_id = static_cast<int32_t>(mask),
                                          .kept_id = special.end_of_text.value_or(-1)});
}

std::shared_ptr<const Dataset> SequenceConfig::windows(std::shared_ptr<const TokenStream> stream,
                                                       int64_t first, int64_t count,
                                                       bool training) const {
  const WindowOptions options{sequence_length, training && random_offset};
  return transform_samples(masked(token_windows(std::move(stream), first, count, options, name())),
                           changes());
}

std::shared_ptr<const LengthPlan> SequenceConfig::length_plan(const Dataset& dataset, int64_t,
                                                              uint64_t) const {
  return curriculum ? make_curriculum(dataset, curriculum->options) : nullptr;
}

std::shared_ptr<const Dataset> SequenceConfig::open(const OpenOptions&) const {
  const auto stream = open_stream(nullptr, {});
  return windows(stream, 0, stream->size(), true);
}

int64_t SequenceConfig::held_out(int64_t tokens, double eval_fraction) {
  return static_cast<int64_t>(std::llround(eval_fraction * static_cast<double>(tokens)));
}

// Holds out the end of the text, so that no token is in both splits.
DataSplit SequenceConfig::open_split(const HeldOut& part, const OpenOptions&) const {
  const auto stream = open_stream(nullptr, {});
  const int64_t last = held_out(stream->size(), part.fraction);
  const int64_t trained = stream->size() - last;
  if (std::min(trained, last) <= sequence_length) {
    throw Error(
        ExitCode::data,
        fmt::format("data.eval_fraction {} leaves {} of {} tokens for {}; one sequence of {} "
                    "and its targets need {}",
                    part.fraction, std::min(trained, last), stream->size(),
                    trained < last ? "training" : "evaluation", sequence_length,
                    sequence_length + 1),
        name());
  }
  return {windows(stream, 0, trained, true), windows(stream, trained, last, false)};
}

std::shared_ptr<const Dataset> SequenceConfig::open_as_eval(
    const std::function<std::shared_ptr<const Dataset>()>& train, const OpenOptions&) const {
  const auto stream = open_stream(wants_tokenizer() ? train()->tokenizer() : nullptr, {});
  return windows(stream, 0, stream->size(), false);
}

}  // namespace dltrain
