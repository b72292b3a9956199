// dltrain data inspect|show|prepare|tokenizer: what a configuration's data looks like, and faster
// files of it.
#include "dltrain/commands.h"

namespace dltrain {

CommandBody add_parts(CLI::App& command, const std::vector<CommandRow>& rows) {
  command.require_subcommand(1);
  auto bodies = std::make_shared<std::vector<std::pair<CLI::App*, CommandBody>>>();
  for (const CommandRow& row : rows) {
    CLI::App* part = command.add_subcommand(row.name, row.doc);
    bodies->emplace_back(part, row.add(*part));
  }
  return [bodies] {
    for (const auto& [part, body] : *bodies) {
      if (part->parsed()) return body();
    }
    return ExitCode::usage;
  };
}

CommandBody add_data(CLI::App& command) {
  return add_parts(
      command,
      {{"inspect", "Counts, statistics, duplicates, outliers, broken samples", add_data_inspect},
       {"show", "Draw samples as the model sees them (PNG), with labels", add_data_show},
       {"prepare",
        "Write images into one packed file, or text into files of tokens, which are read faster",
        add_data_prepare},
       {"tokenizer", "Learn a SentencePiece vocabulary from text files", add_data_tokenizer}});
}

}  // namespace dltrain
