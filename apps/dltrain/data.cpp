// dltrain data inspect|show|prepare|tokenizer: what a configuration's data looks like, and faster
// files of it.
#include "dltrain/commands.h"

namespace dltrain {

CommandBody add_data(CLI::App& command) {
  command.require_subcommand(1);
  auto bodies = std::make_shared<std::vector<std::pair<CLI::App*, CommandBody>>>();
  const auto add = [&](const char* name, const char* doc, CommandBody (*add_one)(CLI::App&)) {
    CLI::App* part = command.add_subcommand(name, doc);
    bodies->emplace_back(part, add_one(*part));
  };
  add("inspect", "Counts, statistics, duplicates, outliers, broken samples", add_data_inspect);
  add("show", "Draw samples as the model sees them (PNG), with labels", add_data_show);
  add("prepare",
      "Write images into one packed file, or text into files of tokens, which are read faster",
      add_data_prepare);
  add("tokenizer", "Learn a SentencePiece vocabulary from text files", add_data_tokenizer);
  return [bodies] {
    for (const auto& [part, body] : *bodies) {
      if (part->parsed()) return body();
    }
    return ExitCode::usage;
  };
}

}  // namespace dltrain
