#include "launch/relay.h"

#include <fstream>
#include <iterator>

#include <fcntl.h>
#include <unistd.h>

#include "catch.h"
#include "temporary_folder.h"

using namespace dltrain;

TEST_CASE("a rank that never stops writing does not keep the launcher from the others") {
  const TemporaryFolder folder;
  const std::string from = (folder.path() / "from").string(), to = (folder.path() / "to").string();
  // More is there, at once, than is taken at once; it ends without a newline.
  std::string lines;
  while (lines.size() < 5 * LineRelay::kMaxAtOnce / 2) {
    lines += "line " + std::to_string(lines.size()) + "\n";
  }
  lines += "the end";
  std::ofstream(from) << lines;
  const FileDescriptor sink(open(to.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  LineRelay relay(FileDescriptor(open(from.c_str(), O_RDONLY | O_CLOEXEC)), sink.get(), "", 1);
  for (size_t turn = 1; turn <= 2; ++turn) {
    CHECK(relay.pump());
    CHECK(relay.open());
    const off_t passed = lseek(sink.get(), 0, SEEK_CUR);
    CHECK(passed <= static_cast<off_t>(turn * LineRelay::kMaxAtOnce));
    CHECK(passed > static_cast<off_t>(turn * LineRelay::kMaxAtOnce - 100));
  }
  CHECK(relay.pump());
  CHECK_FALSE(relay.open());
  std::ifstream file(to);
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == lines + "\n");
  CHECK(relay.last_lines().back() == "the end");
}
