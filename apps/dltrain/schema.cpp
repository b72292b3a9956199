// dltrain schema [--reference]: the registry of keys, for editors and for docs/config.md.
#include "config/schema.h"

#include <cstdio>

#include "config/reference.h"
#include "dltrain/commands.h"

namespace dltrain {
namespace {

constexpr const char* kTitle =
    "# Configuration\n\n"
    "Every key of an experiment file. Written by `scripts/update_docs.sh` from the registry that "
    "the\n"
    "parser uses (`dltrain schema --reference`); do not edit it by hand. Files that build on "
    "others, "
    "`-s`,\n"
    "and where relative paths are looked for: [configuration.md](configuration.md).\n\n";

}  // namespace

CommandBody add_schema(CLI::App& command) {
  auto reference = std::make_shared<bool>(false);
  command.add_flag("--reference", *reference, "Print docs/config.md (Markdown) instead");
  return [reference] {
    const std::string text = *reference ? kTitle + config_reference<Experiment>()
                                        : config_schema<Experiment>("dltrain experiment");
    std::fputs(text.c_str(), stdout);
    return ExitCode::ok;
  };
}

}  // namespace dltrain
