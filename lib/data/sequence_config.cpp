#include "data/sequence_config.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "data/mixed_sources.h"
#include "data/token_windows.h"
#include "data/warn_once.h"

namespace dltrain {
namespace {

// Returns the token that ends a document: `given`, or the tokenizer's end of text. Throws
// Error(data) at the place `name` if there is none.
int32_t document_end(const TokenStream& stream, std::optional<int64_t> given,
                     const std::string& name) {
  if (const auto& tokenizer = stream.tokenizer(); !given && tokenizer) {
    given = tokenizer->special().end_of_text;
  }
  if (!given) {
    throw Error(ExitCode::data,
                "document_mask needs the token that ends a document: a tokenizer with an "
                "end-of-text token (char and byte: special_tokens: [<|endoftext|>]), or "
                "end_token_id",
                name);
  }
  if (*given >= stream.vocab_size()) {
    throw Error(ExitCode::data,
                fmt::format("end_token_id {} is not in the vocabulary (0 to {})", *given,
                            stream.vocab_size() - 1),
                name);
  }
  return static_cast<int32_t>(*given);
}

// Returns what errors name: the path, or of several the first file that is not empty.
std::string name_of(const std::vector<std::string>& paths, const TokenStream& stream) {
  return paths.size() == 1 ? paths.front() : stream.name();
}

// Warns if no document ends in the first tokens of a part.
void warn_without_ends(const TokenStream& stream, int64_t first, int64_t count, int32_t end,
                       const std::string& name) {
  constexpr int64_t kLooked = 1 << 20;
  std::vector<int32_t> ids(static_cast<size_t>(std::min(count, kLooked)));
  stream.read(first, static_cast<int64_t>(ids.size()), ids.data());
  if (std::find(ids.begin(), ids.end(), end) != ids.end()) return;
  log_warning(
      "{}: no document ends (token {}) in the first {} tokens, so document_mask has no "
      "effect there",
      name, end, ids.size());
}

}  // namespace

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

void SourceConfig::describe(Fields& f) {
  f.text("name", name,
         {.doc = "Name of the source in metrics: letters, digits, `_` and `-`", .required = true});
  f.texts("path", path,
          {.doc = "Files or glob patterns of them, in this order",
           .required = true,
           .min_size = 1,
           .scalar_ok = true,
           .is_path = true,
           .known_as = {"file", "files"}});
  f.number("weight", weight,
           {.doc = "Share of the training samples, relative to the weights of the other sources; "
                   "without weights, each sample is drawn once an epoch",
            .max = 1e9,
            .above = 0,
            .known_as = {"proportion", "probability", "ratio"}});
  f.number("max_epochs", max_epochs,
           {.doc = "After this number of epochs training draws no more samples from this source, "
                   "and the others take its part",
            .max = 1e9,
            .above = 0,
            .known_as = {"max_repetition_ratio", "repeats"}});
}

void SequenceConfig::describe_path(Fields& f, const std::string& doc, const char* known_as) {
  f.list("sources", sources,
         {.doc = "Instead of path: several sources, mixed by weights in training. Evaluation "
                 "measures each source by itself, under its name, and all together",
          .max_size = kMaxSources,
          .known_as = {"datasets", "mixture", "blend"}});
  f.texts("path", path,
          {.doc = doc,
           .required = sources.empty(),
           .min_size = sources.empty() ? 1U : 0U,
           .scalar_ok = true,
           .is_path = true,
           .known_as = {"file", "files", known_as}});
}

void SequenceConfig::warn_of_joined_documents(const std::string& name, const Tokenizer& tokenizer) {
  if (tokenizer.special().end_of_text) return;
  warn_once(name +
            ": the documents follow each other without a separator, because the tokenizer has no "
            "end-of-text token (char and byte: special_tokens: [<|endoftext|>])");
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
  f.boolean("document_mask", document_mask,
            {.doc = "Tokens attend to tokens of their own document only, and learned positions "
                    "count from its first token. A document ends with an end-of-text token",
             .known_as = {"reset_attention_mask", "block_causal", "intra_document_masking"}});
  f.integer("end_token_id", end_token_id,
            {.doc = "With document_mask: the token that ends a document; if absent, the "
                    "tokenizer's end of text",
             .min = 0,
             .max = INT32_MAX,
             .known_as = {"eos_token_id", "eod_token_id"}});
  DatasetConfig::describe(f);
  // The templates of pairs have names of special tokens. Written to the run's configuration.
  if (tokenizer && !tokenizer->parse_special) tokenizer->parse_special = !is_one_text();
}

void SequenceConfig::validate(Diagnostics& diagnostics) const {
  DatasetConfig::validate(diagnostics);
  validate_sources(diagnostics);
  refuse_image_keys(diagnostics);
  if (mask_token_id && !mlm_probability) {
    diagnostics.add(*this, "mask_token_id", "mask_token_id needs mlm_probability");
  }
  if (document_mask && mlm_probability) {
    diagnostics.add(*this, "document_mask",
                    "document_mask is for causal attention, not for mlm_probability");
  }
  if (end_token_id && !document_mask) {
    diagnostics.add(*this, "end_token_id", "end_token_id needs document_mask");
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

void SequenceConfig::validate_sources(Diagnostics& diagnostics) const {
  if (sources.empty()) return;
  if (!path.empty()) diagnostics.add(*this, "path", "give path or sources, not both");
  if (sampling != Sampling::uniform) {
    diagnostics.add(*this, "sampling", "sources need `sampling: uniform`");
  }
  size_t weights = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    const SourceConfig& source = sources[i];
    weights += source.weight ? 1 : 0;
    const bool plain = std::all_of(source.name.begin(), source.name.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '-';
    });
    if (!plain || source.name.empty()) {
      diagnostics.add(source, "name", "use letters, digits, `_` and `-`: it names metrics");
    }
    if (source.name == "eval") {
      diagnostics.add(source, "name", "eval_loss is the loss of evaluations; use another name");
    }
    for (size_t other = 0; other < i; ++other) {
      if (sources[other].name != source.name) continue;
      diagnostics.add(source, "name", "two sources are named '{}'", source.name);
    }
  }
  if (weights != 0 && weights != sources.size()) {
    diagnostics.add(*this, "sources", "give a weight to all sources or to none");
  }
}

std::shared_ptr<const Dataset> SequenceConfig::masked(std::shared_ptr<const Dataset> windows,
                                                      const std::string& name) const {
  if (!mlm_probability) return windows;
  const auto tokenizer = windows->tokenizer();
  const SpecialTokens special = tokenizer ? tokenizer->special() : SpecialTokens{};
  if (!mask_token_id && !special.mask) {
    throw Error(
        ExitCode::data,
        "mlm_probability needs a mask token: a tokenizer that has <mask> or [MASK] (char and "
        "byte: special_tokens: [<mask>]), or mask_token_id",
        name);
  }
  const int64_t mask = mask_token_id ? *mask_token_id : *special.mask;
  if (mask >= windows->label_bound()) {
    throw Error(ExitCode::data,
                fmt::format("mask_token_id {} is not in the vocabulary (0 to {})", mask,
                            windows->label_bound() - 1),
                name);
  }
  return mask_tokens(std::move(windows), {.probability = *mlm_probability,
                                          .mask_id = static_cast<int32_t>(mask),
                                          .kept_id = special.end_of_text.value_or(-1)});
}

std::shared_ptr<const Dataset> SequenceConfig::windows(std::shared_ptr<const TokenStream> stream,
                                                       int64_t first, int64_t count, bool training,
                                                       const std::string& name) const {
  WindowOptions options{sequence_length, training && random_offset};
  if (document_mask) {
    options.document_end = document_end(*stream, end_token_id, name);
    if (training) warn_without_ends(*stream, first, count, *options.document_end, name);
  }
  return transform_samples(
      masked(token_windows(std::move(stream), first, count, options, name), name), changes());
}

std::shared_ptr<const LengthPlan> SequenceConfig::length_plan(const Dataset& dataset,
                                                              int64_t global_batch,
                                                              uint64_t seed) const {
  return curriculum ? make_curriculum(dataset, curriculum->options)
                    : DatasetConfig::length_plan(dataset, global_batch, seed);
}

std::shared_ptr<const TokenStream> SequenceConfig::open_tokens(
    const TokenStream* train, const std::filesystem::path& file) const {
  if (!sources.empty()) {
    fail(ExitCode::usage, "data prepare takes `path`: prepare each source in a folder of its own");
  }
  return open_stream(path, train != nullptr && wants_tokenizer() ? train->tokenizer() : nullptr,
                     file);
}

DataSplit SequenceConfig::open_all(
    TokenizerPointer shared,
    const std::function<DataSplit(const Paths&, const TokenizerPointer&)>& open) const {
  if (sources.empty()) return open(path, shared);
  if (!shared && wants_tokenizer()) {
    Paths all;
    for (const SourceConfig& source : sources) {
      all.insert(all.end(), source.path.begin(), source.path.end());
    }
    shared = open_files(all, nullptr, false)->tokenizer();
  }
  std::vector<NamedData> train, eval;
  for (const SourceConfig& source : sources) {
    const DataSplit split = open(source.path, shared);
    if (!shared) shared = split.train->tokenizer();
    train.push_back(
        {source.name, split.train, source.weight.value_or(0), source.max_epochs.value_or(0)});
    if (split.eval) eval.push_back({source.name, split.eval});
  }
  return {mix_sources(std::move(train)), eval.empty() ? nullptr : mix_sources(std::move(eval))};
}

std::shared_ptr<const Dataset> SequenceConfig::open(const OpenOptions&) const {
  const auto open = [&](const Paths& paths, const TokenizerPointer& shared) {
    return DataSplit{open_files(paths, shared, true), nullptr};
  };
  return open_all(nullptr, open).train;
}

std::shared_ptr<const Dataset> SequenceConfig::open_as_eval(
    const std::function<std::shared_ptr<const Dataset>()>& train, const OpenOptions&) const {
  const auto open = [&](const Paths& paths, const TokenizerPointer& shared) {
    return DataSplit{open_files(paths, shared, false), nullptr};
  };
  return open_all(wants_tokenizer() ? train()->tokenizer() : nullptr, open).train;
}

DataSplit SequenceConfig::open_split(const HeldOut& part, const OpenOptions&) const {
  return open_all(nullptr, [&](const Paths& paths, const TokenizerPointer& shared) {
    return split_files(paths, shared, part);
  });
}

std::shared_ptr<const Dataset> SequenceConfig::open_files(const Paths& paths,
                                                          const TokenizerPointer& shared,
                                                          bool training) const {
  const auto stream = open_stream(paths, shared, {});
  return windows(stream, 0, stream->size(), training, name_of(paths, *stream));
}

int64_t SequenceConfig::held_out(int64_t tokens, double eval_fraction) {
  return static_cast<int64_t>(std::llround(eval_fraction * static_cast<double>(tokens)));
}

// Holds out the end of the text, so that no token is in both splits.
DataSplit SequenceConfig::split_files(const Paths& paths, const TokenizerPointer& shared,
                                      const HeldOut& part) const {
  const auto stream = open_stream(paths, shared, {});
  const int64_t last = held_out(stream->size(), part.fraction);
  const int64_t trained = stream->size() - last;
  const std::string name = name_of(paths, *stream);
  if (std::min(trained, last) <= sequence_length) {
    throw Error(
        ExitCode::data,
        fmt::format("data.eval_fraction {} leaves {} of {} tokens for {}; one sequence of {} "
                    "and its targets need {}",
                    part.fraction, std::min(trained, last), stream->size(),
                    trained < last ? "training" : "evaluation", sequence_length,
                    sequence_length + 1),
        name);
  }
  return {windows(stream, 0, trained, true, name), windows(stream, trained, last, false, name)};
}

}  // namespace dltrain
