// The keys of `type: jsonl`.

#include "base/cpus.h"
#include "base/error.h"
#include "data/jsonl.h"
#include "data/memory_dataset.h"
#include "data/registry.h"
#include "data/sequence_config.h"
#include "data/text_files.h"
#include "text/config.h"

namespace dltrain {
namespace {

struct JsonlConfig final : SequenceConfig {
  std::vector<std::string> path;
  std::unique_ptr<TokenizerConfig> tokenizer;
  std::optional<std::string> field, prompt, completion, source, target;
  std::optional<int64_t> source_length;
  bool source_lengths = true;
  std::optional<int64_t> length_buckets;

  void describe(Fields& f) override {
    f.texts("path", path,
            {.doc = "Files of a JSON object a line, plain or gzip, or glob patterns of them",
             .required = true,
             .min_size = 1,
             .scalar_ok = true,
             .is_path = true,
             .known_as = {"file", "files", "filename"}});
    f.one_of("tokenizer", tokenizer, tokenizer_table(),
             {.doc = "How text becomes tokens", .required = true});
    f.text("field", field,
           {.doc = "Key of the text, where records are documents of one stream (default text)",
            .known_as = {"text_field", "text_column"}});
    f.text("prompt", prompt,
           {.doc = "Key of the text that the loss leaves out; with completion",
            .known_as = {"instruction", "prompt_field"}});
    f.text("completion", completion,
           {.doc = "Key of the text behind the prompt, which the loss counts",
            .known_as = {"response", "completion_field"}});
    f.text("source", source,
           {.doc = "Key of the text that an encoder reads, the input `source`; with target",
            .known_as = {"source_column", "input_text"}});
    f.text("target", target,
           {.doc = "Key of the text that a decoder is to give; it reads the tokens before each, "
                   "the input `decoder_input`",
            .known_as = {"target_column", "target_text"}});
    f.integer("source_length", source_length,
              {.doc = "Tokens of the source; absent: sequence_length", .min = 1, .max = 1 << 24});
    f.boolean("source_lengths", source_lengths,
              {.doc = "With source: samples have an input `source_lengths`, how many tokens of the "
                      "source are no padding, which is a mask for attention"});
    f.integer("length_buckets", length_buckets,
              {.doc = "With pairs of texts: training puts samples of like length together, in so "
                      "many groups of about equal size, and pads them to the longest of the group "
                      "instead of to sequence_length. Each group has a plan of its own, made "
                      "before the first step. An epoch leaves out the samples that fill no batch",
               .min = 1,
               .max = 64,
               .known_as = {"group_by_length", "buckets", "bucket_by_length"}});
    SequenceConfig::describe(f);
  }

  void validate(Problems& problems) const override {
    SequenceConfig::validate(problems);
    const int uses = (field ? 1 : 0) + (prompt || completion ? 1 : 0) + (source || target ? 1 : 0);
    if (uses > 1 || prompt.has_value() != completion.has_value() ||
        source.has_value() != target.has_value()) {
      problems.add(place, "records have a field, or prompt and completion, or source and target");
    }
    if (source_length && !source) {
      problems.add(*this, "source_length", "source_length needs source and target");
    }
    if (!source_lengths && !source) {
      problems.add(*this, "source_lengths", "source_lengths needs source and target");
    }
    if (pairs() && curriculum) {
      problems.add(*this, "curriculum", "a curriculum needs documents (field)");
    }
    if (length_buckets && !pairs()) {
      problems.add(*this, "length_buckets", "length_buckets needs pairs of texts");
    }
    if (length_buckets && sampling == Sampling::balanced) {
      problems.add(*this, "sampling", "length_buckets are an order of their own; keep one");
    }
    if (length_buckets && source && !source_lengths) {
      problems.add(*this, "source_lengths",
                   "length_buckets cut padding off, which a model without source_lengths sees");
    }
    if (mlm_probability && (prompt || source)) {
      problems.add(*this, "mlm_probability", "mlm_probability needs documents (field)");
    }
  }

  bool is_one_text() const override { return !pairs(); }
  std::optional<SourceText> source_text() const override {
    if (!source) return {};
    return SourceText{.length = source_length.value_or(sequence_length), .lengths = source_lengths};
  }
  std::string next_token_input() const override {
    return source ? "decoder_input" : SequenceConfig::next_token_input();
  }
  std::shared_ptr<const LengthPlan> length_plan(const Dataset& dataset, int64_t global_batch,
                                                uint64_t seed) const override {
    if (!length_buckets) return SequenceConfig::length_plan(dataset, global_batch, seed);
    return std::make_shared<Buckets>(dataset, BucketOptions{.count = *length_buckets,
                                                            .global_batch = global_batch,
                                                            .seed = seed,
                                                            .shuffle = shuffle});
  }
  std::shared_ptr<const Dataset> open(const Opening&) const override {
    return pairs() ? open_pairs(nullptr) : SequenceConfig::open({});
  }
  DataSplit open_split(const HeldOut& part, const Opening& how) const override {
    return pairs() ? DatasetConfig::open_split(part, how) : SequenceConfig::open_split(part, how);
  }
  std::shared_ptr<const Dataset> open_as_eval(
      const std::function<std::shared_ptr<const Dataset>()>& train,
      const Opening& how) const override {
    if (!pairs()) return SequenceConfig::open_as_eval(train, how);
    return open_pairs(wants_tokenizer() ? train()->tokenizer() : nullptr);
  }

 protected:
  bool wants_tokenizer() const override { return tokenizer->learns(); }
  std::string name() const override { return path.front(); }

  std::shared_ptr<const TokenStream> open_stream(
      const std::shared_ptr<const Tokenizer>& given,
      const std::filesystem::path& collected) const override {
    if (pairs()) fail(ExitCode::usage, "pairs of texts are no stream of tokens");
    const auto made = make_tokenizer(given);
    TokenCollector tokens(made->vocab_size(), collected);
    const auto& separator = made->special().end_of_text;
    for (const std::string& file : expand_paths(path)) {
      LineReader lines{std::filesystem::path(file)};
      tokens.begin_segment(file);
      read_jsonl(lines, *made, options(), [&](TokenRecord& record) {
        tokens.add(record.texts[0]);
        if (separator) tokens.add({&*separator, 1});
        check_fits_memory(2 * tokens.memory_bytes(), file);
      });
    }
    return tokens.finish(made);
  }

 private:
  bool pairs() const { return prompt || source; }

  JsonlOptions options() const {
    JsonlOptions out{.special = tokenizer->special_text(), .threads = bound_cpu_count()};
    if (prompt) {
      out.keys = {*prompt, *completion};
    } else if (source) {
      out.keys = {*source, *target};
    } else {
      out.keys = {field.value_or("text")};
    }
    return out;
  }

  std::shared_ptr<const Tokenizer> make_tokenizer(
      const std::shared_ptr<const Tokenizer>& given) const {
    if (given) return given;
    return tokenizer->open([&](const auto& use) {
      for (const std::string& file : expand_paths(path)) {
        LineReader lines{std::filesystem::path(file)};
        read_jsonl_texts(lines, options().keys, use);
      }
    });
  }

  std::shared_ptr<const Dataset> open_pairs(const std::shared_ptr<const Tokenizer>& given) const {
    const auto made = make_tokenizer(given);
    PairCollector pairs(name(), made,
                        {.length = sequence_length,
                         .source_length = source ? source_text()->length : 0,
                         .source_lengths = source_lengths});
    for (const std::string& file : expand_paths(path)) {
      LineReader lines{std::filesystem::path(file)};
      read_jsonl(lines, *made, options(), [&](TokenRecord& record) { pairs.add(record); });
    }
    return change_samples(pairs.finish(), changes());
  }
};

}  // namespace

KindRow<DatasetConfig> jsonl_row() {
  return {"jsonl", "Texts of JSON Lines: documents, prompts with completions, or pairs",
          make_kind_of<JsonlConfig>};
}

}  // namespace dltrain
