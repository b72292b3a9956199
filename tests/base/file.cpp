#include "base/file.h"

#include <chrono>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/faulty_disk.h"
#include "base/run_lock.h"
#include "base/verified_files.h"
#include "catch.h"
#include "temporary_folder.h"

using namespace dltrain;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {
ExitCode code_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.code();
  }
  return ExitCode::ok;
}
}  // namespace

TEST_CASE("reading refuses what is missing, too large or no regular file, naming it") {
  TemporaryFolder folder;
  const fs::path path = folder.write("a.txt", "hello");
  CHECK(read_file(path, 5, ExitCode::data) == "hello");
  CHECK_THROWS_WITH(read_file(path, 4, ExitCode::data),
                    path.string() + ": 5 bytes, expected at most 4");
  CHECK_THROWS_WITH(read_file(folder / "b", 4, ExitCode::data),
                    (folder / "b").string() + ": cannot open: No such file or directory");
  CHECK_THROWS_WITH(MappedFile(folder.path(), ExitCode::data), Contains("is a folder"));
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THROWS_WITH(MappedFile(folder / "pipe", ExitCode::data), Contains("not a regular file"));
  CHECK(code_of([&] { read_file(folder / "b", 4, ExitCode::data); }) == ExitCode::data);
  CHECK(code_of([&] { read_file(folder / "b", 4, ExitCode::storage); }) == ExitCode::storage);
  CHECK(is_file(path));
  CHECK_FALSE(is_file(folder.path()));
  CHECK_FALSE(is_file(folder / std::string(300, 'x')));  // longer than a name can be
  folder.write("empty", "");
  CHECK(MappedFile(folder / "empty", ExitCode::data).bytes().empty());
}

TEST_CASE("an atomic write replaces the whole file and survives every failing call") {
  TemporaryFolder folder;
  const fs::path path = folder / "latest";
  write_file_atomically(path, "old");
  FaultyDisk counter(FaultyDisk::Fault::none, 0);
  {
    ReplaceSystemCalls guard(counter);
    write_file_atomically(path, "old");
  }
  for (int k = 0; k < counter.calls(); ++k) {
    for (auto fault : {FaultyDisk::Fault::error, FaultyDisk::Fault::kill}) {
      write_file_atomically(path, "old");
      FaultyDisk disk(fault, k, EIO);
      ReplaceSystemCalls guard(disk);
      try {
        write_file_atomically(path, "new!");
      } catch (const Error& error) {
        CHECK(error.code() == ExitCode::storage);
      }
      const std::string content = slurp(path);
      CHECK((content == "old" || content == "new!"));
    }
  }
  write_file_atomically(path, "last");
  CHECK(slurp(path) == "last");
}

TEST_CASE("an atomic write keeps a symbolic link and writes to devices") {
  TemporaryFolder folder;
  folder.write("target", "old");
  fs::create_symlink("target", folder / "link");
  write_file_atomically(folder / "link", "new");
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(slurp(folder / "target") == "new");
  write_file_atomically("/dev/null", "gone");
  CHECK(fs::is_character_file("/dev/null"));
  CHECK_THROWS_WITH(write_file_atomically("/dev/full", "text"), Contains("No space left"));
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  write_file_atomically("/dev/fd/" + std::to_string(ends[1]), "through");
  char text[16] = {};
  CHECK(::read(ends[0], text, sizeof text) == 7);
  CHECK(std::string(text) == "through");
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_CASE("an unwritable place is a storage error with its path") {
  CHECK(code_of([] { write_file_atomically("/proc/none/x", "text"); }) == ExitCode::storage);
  TemporaryFolder folder;
  CHECK_THROWS_WITH(
      write_file_atomically(folder / "none/x.csv", "text"),
      Contains("none/x.csv: cannot create: there is no folder ") && !Contains(".tmp-"));
  CHECK_THROWS_WITH(make_directories("/proc/none/x"), Contains("/proc/none: cannot create"));
}

TEST_CASE("folders are created with their parents and removed without following links") {
  TemporaryFolder folder;
  make_directories(folder / "a/b/c/");
  make_directories(folder / "a/b/c");
  CHECK(fs::is_directory(folder / "a/b/c"));
  folder.write("a/b/file", "text");
  fs::create_directory(folder / "kept");
  folder.write("kept/file", "text");
  fs::create_directory_symlink(folder / "kept", folder / "a/link");
  remove_recursively(folder / "a");
  remove_recursively(folder / "a");
  CHECK_FALSE(fs::exists(folder / "a"));
  CHECK(slurp(folder / "kept/file") == "text");
}

TEST_CASE("checksums find every damage") {
  TemporaryFolder folder;
  FileWriter writer(folder / "a.bin");
  writer.write("some bytes");
  const FileDigest digest = writer.close();
  CHECK(digest.bytes == 10);
  folder.write("checksums.json", checksums_to_json({{"a.bin", digest}}));
  CHECK(verify_checksums(folder.path()).at("a.bin") == digest);

  folder.write("a.bin", "some byteS");
  CHECK_THROWS_WITH(verify_checksums(folder.path()), Contains("a.bin: damaged: its content"));
  folder.write("a.bin", "some byte");
  CHECK_THROWS_WITH(verify_checksums(folder.path()), Contains("9 bytes, checksums.json says 10"));
  fs::remove(folder / "a.bin");
  CHECK(code_of([&] { verify_checksums(folder.path()); }) == ExitCode::storage);
  CHECK_THROWS_WITH(verify_checksums(folder.path()), Contains("a.bin: cannot open"));
}

TEST_CASE("a hostile checksums file is refused") {
  TemporaryFolder folder;
  const auto refuses = [&](const std::string& text) {
    folder.write("checksums.json", text);
    return code_of([&] { verify_checksums(folder.path()); }) == ExitCode::storage;
  };
  CHECK(refuses(""));
  CHECK(refuses("[]"));
  CHECK(refuses(R"({"format": 2, "files": {}})"));
  CHECK(refuses(R"({"format": 1, "files": []})"));
  CHECK(refuses(R"({"format": 1, "files": {"../x": {"bytes": 1, "xxh3_128": ""}}})"));
  CHECK(refuses(R"({"format": 1, "files": {"x": {"bytes": -1, "xxh3_128": ""}}})"));
  CHECK(refuses(R"({"format": 1, "files": {"x": {"bytes": 1}}})"));
  CHECK_FALSE(refuses(R"({"format": 1, "files": {}})"));
}

TEST_CASE("the hash is XXH3-128 as others compute it") {
  Hasher hasher;
  CHECK(hasher.hex() == "99aa06d3014798d86001c324468d497f");  // xxhsum -H2 of nothing
}

TEST_CASE("a second holder of a run folder is refused with the first one's process") {
  TemporaryFolder folder;
  {
    RunLock lock(folder.path());
    CHECK(code_of([&] { RunLock second(folder.path()); }) == ExitCode::usage);
    CHECK_THROWS_WITH(RunLock(folder.path()),
                      Contains("in use by process " + std::to_string(::getpid()) + " on "));
  }
  RunLock again(folder.path());
  CHECK(code_of([&] { RunLock none(folder / "missing"); }) == ExitCode::storage);
}

TEST_CASE("a look at the lock does not keep a run from starting") {
  TemporaryFolder folder;
  folder.write(kLockFile, "");
  const int fd = ::open((folder / kLockFile).c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(::flock(fd, LOCK_SH) == 0);  // as is_locked() does
  std::thread reader([fd] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ::close(fd);
  });
  CHECK_NOTHROW(RunLock(folder.path()));
  reader.join();
}
