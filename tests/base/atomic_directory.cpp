#include "base/atomic_directory.h"

#include <string>
#include <vector>

#include "base/faulty_disk.h"
#include "base/run_lock.h"
#include "base/verified_files.h"
#include "catch.h"
#include "temporary_folder.h"

using namespace dltrain;
namespace fs = std::filesystem;

namespace {

void publish(const fs::path& path, const std::string& content) {
  AtomicDirectory folder(path);
  FileWriter& a = folder.create("a.bin");
  FileWriter& b = folder.create("b.json");
  a.write(content);
  b.write("{}");
  a.write(content);
  folder.publish();
}

// The published content, or "" where there is none; a folder that is there must be whole.
std::string published(const fs::path& path) {
  if (!fs::exists(path)) return "";
  CHECK(verify_checksums(path).size() == 2);
  return slurp(path / "a.bin");
}

std::vector<std::string> names_in(const fs::path& path) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

int count_calls(const fs::path& path) {
  FaultyDisk disk(FaultyDisk::Fault::none, 0);
  ReplaceSystemCalls guard(disk);
  publish(path, "count");
  return disk.calls();
}

}  // namespace

TEST_CASE("a published folder is complete and carries checksums") {
  TemporaryFolder folder;
  publish(folder / "x/step-1", "one");
  CHECK(published(folder / "x/step-1") == "oneone");
  publish(folder / "x/step-1", "two");
  CHECK(published(folder / "x/step-1") == "twotwo");
  CHECK(names_in(folder / "x") == std::vector<std::string>{"step-1"});
}

TEST_CASE("a folder that is not published leaves nothing behind") {
  TemporaryFolder folder;
  { AtomicDirectory(folder / "step-1").create("a").write("text"); }
  CHECK(names_in(folder.path()).empty());
}

TEST_CASE("a failing disk gives an error and leaves the earlier folders whole, at every call") {
  for (int error_number : {ENOSPC, EIO}) {
    for (bool replaces : {false, true}) {
      TemporaryFolder counted;
      if (replaces) publish(counted / "step-2", "old");
      const int calls = count_calls(counted / "step-2");
      REQUIRE(calls > 10);
      int errors = 0;
      for (int k = 0; k < calls; ++k) {
        TemporaryFolder folder;
        publish(folder / "step-1", "first");
        if (replaces) publish(folder / "step-2", "old");
        bool failed = false;
        {
          FaultyDisk disk(FaultyDisk::Fault::error, k, error_number);
          ReplaceSystemCalls guard(disk);
          try {
            publish(folder / "step-2", "new");
          } catch (const Error& error) {
            failed = true;
            CHECK(error.code() == ExitCode::storage);
            const std::string text = error.what();
            CHECK(text.find(error_number == EIO ? "Input/output error" : "No space left") !=
                  std::string::npos);
            CHECK(text.find(folder.path().string()) == 0);
          }
        }
        errors += failed;
        CHECK(published(folder / "step-1") == "firstfirst");
        remove_leftovers(folder.path());
        const std::string after = published(folder / "step-2");
        if (!failed) CHECK(after == "newnew");
        CHECK((after == "newnew" || after == (replaces ? "oldold" : "")));
        CHECK(names_in(folder.path()).size() == (after.empty() ? 1u : 2u));
      }
      CHECK(errors > calls / 2);
    }
  }
}

TEST_CASE("a process killed at any call leaves the old folder or the new one") {
  for (bool replaces : {false, true}) {
    TemporaryFolder counted;
    if (replaces) publish(counted / "step-2", "old");
    const int calls = count_calls(counted / "step-2");
    for (int k = 0; k < calls; ++k) {
      TemporaryFolder folder;
      publish(folder / "step-1", "first");
      if (replaces) publish(folder / "step-2", "old");
      {
        FaultyDisk disk(FaultyDisk::Fault::kill, k);
        ReplaceSystemCalls guard(disk);
        try {
          publish(folder / "step-2", "new");
        } catch (const Error&) {
        }
      }
      remove_leftovers(folder.path());
      CHECK(published(folder / "step-1") == "firstfirst");
      const std::string after = published(folder / "step-2");
      CHECK((after == "newnew" || after == (replaces ? "oldold" : "")));
      CHECK(names_in(folder.path()).size() == (after.empty() ? 1u : 2u));
    }
  }
}

TEST_CASE("a short write is continued") {
  TemporaryFolder counted;
  const int calls = count_calls(counted / "step-1");
  for (int k = 0; k < calls; ++k) {
    TemporaryFolder folder;
    FaultyDisk disk(FaultyDisk::Fault::short_write, k);
    ReplaceSystemCalls guard(disk);
    publish(folder / "step-1", "content");
    CHECK(published(folder / "step-1") == "contentcontent");
  }
}

TEST_CASE("a folder that is kept is not removed") {
  const TemporaryFolder folder;
  publish(folder / "kept", "x");
  {
    const auto one = keep_folder(folder / "kept"), other = keep_folder(folder / "kept");
    remove_unless_kept(folder / "kept");
    CHECK(published(folder / "kept") == "xx");
  }
  remove_unless_kept(folder / "kept");
  CHECK_FALSE(fs::exists(folder / "kept"));
  CHECK_NOTHROW(keep_folder(folder / "none"));
  CHECK_NOTHROW(remove_unless_kept(folder / "none"));
}
