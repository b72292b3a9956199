// Files that are read and compared with their checksums in one pass, by several readers.
#include "base/verified_files.h"

#include <map>
#include <string>

#include "base/file.h"
#include "catch.h"
#include "temporary_folder.h"

using namespace dltrain;

namespace {

// Bytes that differ from piece to piece.
std::string content_of(size_t bytes) {
  std::string out(bytes, '\0');
  uint64_t state = bytes;
  for (char& c : out) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    c = static_cast<char>(state >> 56);
  }
  return out;
}

FileDigest write_hashed(const std::filesystem::path& path, const std::string& content) {
  FileWriter writer(path);
  // Writes end anywhere within pieces.
  const size_t first = content.size() / 3;
  writer.write(std::string_view(content).substr(0, first));
  writer.write(std::string_view(content).substr(first));
  return writer.close();
}

}  // namespace

TEST_CASE("readers verify each byte once and get the ranges that they want") {
  TemporaryFolder folder;
  const std::map<std::string, size_t> sizes{
      {"a", 2 * kPieceBytes + 12345}, {"b", 3 * kPieceBytes}, {"c", 100}, {"d", 0}};
  std::map<std::string, std::string> content;
  Checksums written;
  uint64_t all = 0;
  for (const auto& [name, size] : sizes) {
    content[name] = content_of(size);
    written[name] = write_hashed(folder / name, content[name]);
    all += size;
  }
  CHECK(written["a"].pieces.size() == 3 * kPieceDigits);
  CHECK(written["b"].pieces.size() == 3 * kPieceDigits);
  CHECK(written["c"].pieces.empty());
  const auto second = std::as_bytes(std::span(content["b"])).subspan(kPieceBytes, kPieceBytes);
  CHECK(written["b"].pieces.substr(kPieceDigits, kPieceDigits) == piece_hash(second));
  Checksums listed = checksums_from_json(checksums_to_json(written), "");
  CHECK(listed == written);
  const bool pieces = GENERATE(true, false);
  if (!pieces) {  // as earlier versions wrote them
    for (auto& [name, digest] : listed) digest.piece_bytes = 0, digest.pieces.clear();
  }
  const std::vector<ByteRange> wanted{
      {5, 6}, {6, 2 * kPieceBytes + 7}, {2 * kPieceBytes + 9, 2 * kPieceBytes + 100}};
  for (int readers : {1, 2, 3, 7}) {
    uint64_t hashed = 0;
    for (int reader = 0; reader < readers; ++reader) {
      VerifiedFiles files(folder.path(), listed, reader, readers);
      std::string got;
      uint64_t at = 0;
      files.read("a", wanted, [&](uint64_t offset, std::span<const std::byte> bytes) {
        CHECK(offset >= at);
        at = offset + bytes.size();
        got.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      });
      CHECK(got == content["a"].substr(5, 2 * kPieceBytes + 2) +
                       content["a"].substr(2 * kPieceBytes + 9, 91));
      CHECK(files.finish().empty());
      hashed += files.bytes_hashed();
      if (pieces) CHECK(files.bytes_hashed() <= all / static_cast<uint64_t>(readers) + kPieceBytes);
      CHECK(files.bytes_read() <= files.bytes_hashed() + 2 * kPieceBytes + 93);
    }
    CHECK(hashed == all);
    // Damage anywhere is found by one reader.
    for (const auto& [name, size] : sizes) {
      for (size_t at = 0; at < size; at += kPieceBytes + 99) {
        std::string damaged = content[name];
        damaged[at] ^= 8;
        folder.write(name, damaged);
        int found = 0;
        for (int reader = 0; reader < readers; ++reader) {
          const std::string text = VerifiedFiles(folder.path(), listed, reader, readers).finish();
          if (text.empty()) continue;
          ++found;
          CHECK(text ==
                (folder / name).string() + ": damaged: its content does not match checksums.json");
        }
        CHECK(found == 1);
      }
      folder.write(name, content[name]);
    }
  }
}

TEST_CASE("an error of the one who uses the bytes is no damage") {
  TemporaryFolder folder;
  const Checksums listed{{"a", write_hashed(folder / "a", content_of(1000))}};
  VerifiedFiles files(folder.path(), listed);
  const std::vector<ByteRange> wanted{{0, 10}};
  CHECK_THROWS_AS(files.read("a", wanted, [](uint64_t, auto) { fail(ExitCode::usage, "no"); }),
                  Error);
  CHECK(files.finish().empty());
}

TEST_CASE("pieces that do not fit a file are refused") {
  const auto refused = [](const std::string& pieces) {
    const std::string text =
        R"({"format": 1, "files": {"x": {"bytes": 5, "xxh3_128": "", )" + pieces + "}}}";
    try {
      checksums_from_json(text, "here");
    } catch (const Error& error) {
      return std::string(error.what()) == "here: is a damaged checksums file";
    }
    return false;
  };
  CHECK_FALSE(refused(R"("piece_bytes": 4, "pieces": "00000000000000000000000000000000")"));
  CHECK(refused(R"("piece_bytes": 4, "pieces": "0000000000000000")"));
  CHECK(refused(R"("piece_bytes": 0, "pieces": "")"));
  CHECK(refused(R"("piece_bytes": 4, "pieces": 3)"));
  CHECK(refused(R"("piece_bytes": "4", "pieces": "")"));
  CHECK(refused(R"("piece_bytes": 99999999999, "pieces": "0000000000000000")"));
  CHECK(refused(R"("pieces": "0000000000000000")"));
}
