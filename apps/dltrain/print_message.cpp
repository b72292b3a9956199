// Errors on stderr.
#include <cstdio>

#include "base/utf8.h"
#include "comm/environment.h"
#include "dltrain/commands.h"

namespace dltrain {
namespace {

// Returns the prefix for the lines of a rank, as the log has it, unless `dltrain launch` adds it.
std::string mark_of_rank() {
  try {
    const RankEnvironment rank = rank_environment(process_environment());
    if (rank.rank > 0 && !rank.store_served) return fmt::format("[rank {}] ", rank.rank);
  } catch (const Error&) {  // it may be the error that is reported
  }
  return "";
}

}  // namespace

void print_message(const std::string& text) {
  const std::string mark = mark_of_rank();
  std::string out = mark;
  for (const char c : printable(text)) {
    out += c;
    if (c == '\n') out += mark;
  }
  out += '\n';
  std::fputs(out.c_str(), stderr);
}

void print_message_once(const std::string& text) {
  const RankEnvironment rank = rank_environment(process_environment());
  if (rank.rank == 0 && !rank.store_served) print_message(text);
}

}  // namespace dltrain
