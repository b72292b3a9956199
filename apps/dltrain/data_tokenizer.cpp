// dltrain data tokenizer: learns a SentencePiece vocabulary from text files.
#include <set>

#include "base/owned_files.h"
#include "config/suggest.h"
#include "data/line_reader.h"
#include "data/text_files.h"
#include "dltrain/commands.h"
#include "text/train_sentence_piece.h"

namespace dltrain {
namespace {

// Returns an error for the name of a special token that SentencePiece would misread or refuse.
std::string check_special_token(const std::string& token) {
  if (token.empty() || token.find_first_of(" \t\r\n,") != token.npos) {
    return fmt::format("'{}' must be a name without blanks and commas, such as <mask>", token);
  }
  return token == "<unk>" ? "every vocabulary has <unk>" : "";
}

}  // namespace

CommandBody add_data_tokenizer(CLI::App& command) {
  struct Options {
    std::vector<std::string> text;
    std::string output;
    bool overwrite = false;
    TrainSentencePieceOptions train;
  };
  auto options = std::make_shared<Options>();
  command.add_option("TEXT", options->text, "Text files, plain or gzip, or glob patterns of them")
      ->required();
  add_text(command, "-o,--output", options->output, "The folder for tokenizer.model")->required();
  command.add_option("--type", options->train.type, "unigram (the default) or bpe")
      ->check(CLI::IsMember({"unigram", "bpe"}));
  command.add_option("--vocab-size", options->train.vocab_size, "Number of tokens (default 8000)")
      ->check(CLI::Range(int64_t{264}, int64_t{1} << 20));
  command
      .add_option("--character-coverage", options->train.character_coverage,
                  "Share of the characters that get tokens of their own; the others become bytes")
      ->check(CLI::Range(0.9, 1.0));
  command
      .add_option("--special-token", options->train.special_tokens,
                  "A special token, such as <mask>; may be given several times")
      ->check(check_special_token)
      ->allow_extra_args(false);
  command.add_flag("--overwrite", options->overwrite, "Replace a vocabulary that is there already");
  command.footer(
      "Read it with tokenizer: {type: sentencepiece, path: FOLDER}. Lines are learnt from one by "
      "one.");
  return [options] {
    std::set<std::string> names;
    for (const std::string& token : options->train.special_tokens) {
      if (!names.insert(token).second) {
        fail(ExitCode::usage, "--special-token {} is given twice", token);
      }
    }
    const std::vector<std::string> files = expand_paths(options->text, "TEXT");
    const std::filesystem::path model = std::filesystem::path(options->output) / "tokenizer.model";
    std::error_code ignored;
    if (std::filesystem::exists(model, ignored)) {
      if (!lists_file(options->output, "tokenizer.model")) {
        fail(ExitCode::usage, "{} was not written by dltrain; choose another folder",
             model.string());
      }
      if (!options->overwrite) {
        fail(ExitCode::usage, "{} already exists; --overwrite replaces it", model.string());
      }
    }
    size_t opened = 0;
    std::optional<LineReader> reader;  // of the file that is being read
    const auto next = [&]() -> std::optional<std::string_view> {
      for (;;) {
        const auto line = reader ? reader->next() : std::nullopt;
        if (line) return line;
        reader.reset();
        if (opened == files.size()) return {};
        reader.emplace(std::filesystem::path(files[opened++]));
      }
    };
    std::shared_ptr<const Tokenizer> tokenizer;
    try {
      tokenizer = train_sentence_piece(next, options->train);
    } catch (const EncodeError& error) {
      throw Error(ExitCode::data, error.reason(), reader ? reader->location() : std::string());
    } catch (const Error& error) {
      if (error.code() != ExitCode::data || !error.location().empty()) throw;
      throw Error(ExitCode::data, error.what(), some_names(files));
    }
    if (!has_marker(options->output)) mark_folder(options->output);
    save_tokenizer(*tokenizer, options->output);
    fmt::print("{}: {} tokens\n", options->output, tokenizer->vocab_size());
    return ExitCode::ok;
  };
}

}  // namespace dltrain
