// The files that dltrain has written in a folder, and those that it removes.
#include "base/owned_files.h"

#include <csignal>
#include <filesystem>

#include <unistd.h>

#include "base/atomic_directory.h"
#include "base/file.h"
#include "base/shortened_files.h"
#include "base/utf8.h"
#include "catch.h"
#include "refusal.h"
#include "temporary_folder.h"

namespace dltrain {
namespace {

namespace fs = std::filesystem;

void put(const fs::path& path, std::string_view text = "text") {
  make_directories(path.parent_path());
  FileWriter file(path);
  file.write(text);
  file.close();
}

std::string refusal_of_overwrite(const fs::path& folder) {
  return refusal_of([&] { check_all_owned(folder); }, ExitCode::usage);
}

}  // namespace

TEST_CASE("a marked folder gives up what it lists and keeps the rest") {
  const TemporaryFolder temporary;
  const fs::path folder = temporary.path() / "run";
  mark_folder(folder);
  CHECK(has_marker(folder));
  claim_files(folder, {"config.yaml", "checkpoints/latest", "checkpoints/step-000001"});
  put(folder / "config.yaml");
  put(folder / ".lock");
  {
    AtomicDirectory checkpoint(folder / "checkpoints/step-000001");
    checkpoint.create("state.json").write("{}");
    checkpoint.publish();
  }
  fs::create_symlink("step-000001", folder / "checkpoints/latest");
  put(folder / "checkpoints/.tmp-step-000001/state.json");  // of a killed process
  CHECK_NOTHROW(check_all_owned(folder));
  CHECK(lists_file(folder, "config.yaml"));
  CHECK_FALSE(lists_file(folder, "config"));

  const char* foreign = GENERATE("notes.txt", "checkpoints/notes.txt", ".git/HEAD",
                                 "checkpoints/step-000001/patch", "checkpoints/step-000002/a");
  put(folder / foreign);
  CHECK(refusal_of_overwrite(folder).find("was not written by dltrain") != std::string::npos);
  CHECK(refusal_of_overwrite(folder).starts_with(
      (folder / std::string(foreign).substr(0, std::string(foreign).rfind('/'))).string()));
  remove_owned(folder);
  CHECK(fs::exists(folder / foreign));
  CHECK_FALSE(fs::exists(folder / "config.yaml"));
  CHECK_FALSE(fs::exists(folder / "checkpoints/step-000001/state.json"));
  CHECK(has_marker(folder));
  fs::remove_all(folder / *fs::path(foreign).begin());
  CHECK(fs::exists(folder / ".lock"));
}

TEST_CASE("what is there and not listed cannot be claimed") {
  const TemporaryFolder temporary;
  const fs::path folder = temporary.path();
  put(folder / "config.yaml");
  claim_files(folder, {"config.yaml"});  // without a marker nothing is asked
  CHECK(refusal_of_overwrite(folder).find(".dltrain") != std::string::npos);
  mark_folder(folder);
  const auto claim = [&] { claim_files(folder, {"log.txt", "config.yaml"}); };
  CHECK(refusal_of(claim, ExitCode::usage).find("config.yaml exists") != std::string::npos);
  CHECK_FALSE(lists_file(folder, "log.txt"));
  claim_files(folder, {"log.txt"});
  put(folder / "log.txt");
  CHECK_NOTHROW(claim_files(folder, {"log.txt"}));
  // A name that a killed process has cut short is none, and is cut off by the next.
  FileWriter(folder / kMarkerFile, /*append=*/true).write("config.ya");
  CHECK_FALSE(lists_file(folder, "config.ya"));
  claim_files(folder, {"summary.json"});
  CHECK(lists_file(folder, "summary.json"));
  CHECK_FALSE(lists_file(folder, "config.yasummary.json"));

  const fs::path other = folder / "other";
  put(other / kMarkerFile, "somebody else's");
  CHECK_FALSE(has_marker(other));
  refusal_of([&] { mark_folder(other); }, ExitCode::usage);
}

TEST_CASE("replacing a published folder keeps foreign files of the old one") {
  const TemporaryFolder temporary;
  const fs::path folder = temporary.path() / "model";
  const auto publish = [&] {
    AtomicDirectory out(folder);
    out.create("config.json").write("{}");
    out.publish();
  };
  publish();
  CHECK_NOTHROW(check_all_owned(folder));
  put(folder / "mine");
  publish();
  CHECK_FALSE(fs::exists(folder / "mine"));
  CHECK(fs::exists(temporary.path() / ".old-model/mine"));
  CHECK_FALSE(fs::exists(temporary.path() / ".old-model/config.json"));
  // A damaged list claims nothing.
  put(folder / "checksums.json", "{");
  CHECK(refusal_of_overwrite(folder).find("no list") != std::string::npos);
}

TEST_CASE("the folder that a link leads to is replaced, not the link") {
  const TemporaryFolder temporary;
  const fs::path link = temporary.path() / "link";
  fs::create_directory(temporary.path() / "real");
  fs::create_directory_symlink("real", link);
  for (const char* name : {"first", "second"}) {
    AtomicDirectory out(link);
    out.create(name).write("{}");
    out.publish();
  }
  CHECK(fs::is_symlink(link));
  CHECK(fs::exists(temporary.path() / "real/second"));
  CHECK_FALSE(fs::exists(link / "first"));
}

TEST_CASE("a mapped file that shrinks is zeros from there on, and is named") {
  const TemporaryFolder temporary;
  const fs::path path = temporary.path() / "data";
  put(path, std::string(40'000, 'x'));
  const MappedFile file(path, ExitCode::data), other(path, ExitCode::storage);
  truncate_file(path, 10'000);
  CHECK(file.bytes()[9'999] == std::byte{'x'});
  CHECK_NOTHROW(check_mapped_files());
  CHECK(file.bytes()[20'000] == std::byte{0});
  CHECK(file.bytes()[39'999] == std::byte{0});
  CHECK(refusal_of([] { check_mapped_files(); }, ExitCode::data).starts_with(path.string()));
  CHECK_NOTHROW(check_mapped_files());  // told once
  CHECK(other.bytes()[30'000] == std::byte{0});
  CHECK(refusal_of([] { check_mapped_files(); }, ExitCode::storage).find("was shortened") !=
        std::string::npos);
}

TEST_CASE("a declared output is no input, whatever it is called") {
  const TemporaryFolder temporary;
  put(temporary.path() / "table.csv");
  fs::create_symlink("table.csv", temporary.path() / "link.csv");
  declare_output(temporary.path() / "link.csv");
  const auto read = [&] { read_file(temporary.path() / "table.csv", 100, ExitCode::data); };
  CHECK(refusal_of(read, ExitCode::usage).find("would replace") != std::string::npos);
  put(temporary.path() / "other.csv");
  CHECK_NOTHROW(read_file(temporary.path() / "other.csv", 100, ExitCode::data));
}

TEST_CASE("control characters are shown as text") {
  CHECK(printable("a\tb\nc é ☃") == "a\tb\nc é ☃");
  CHECK(printable("\x1b[2J\r\x7f\x07") == "\\x1b[2J\\x0d\\x7f\\x07");
  CHECK(printable("\xc2\x9b[1m \xc2\xa0 \xc2") == "\\u009b[1m \xc2\xa0 \\xc2");
  CHECK(printable("\xe5x \xed\xa0\x80 \xf0\x9f\x98\x80") ==
        "\\xe5x \\xed\\xa0\\x80 \xf0\x9f\x98\x80");
  CHECK(printable(std::string_view("\0x", 2)) == "\\x00x");
}

}  // namespace dltrain
