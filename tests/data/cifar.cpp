#include "data/cifar.h"

#include "images.h"
#include "refusal.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

// A record whose pixel (y, x) of plane c is c * 80 + (y + x) % 64.
std::string record(std::vector<int> labels) {
  std::string out;
  for (int label : labels) out += static_cast<char>(label);
  for (int c = 0; c < 3; ++c) {
    for (int i = 0; i < 1024; ++i) out += static_cast<char>(c * 80 + (i / 32 + i % 32) % 64);
  }
  return out;
}

std::string tar_entry(const std::string& name, const std::string& content) {
  std::string block(512, '\0');
  block.replace(0, name.size(), name);
  const auto octal = [&](size_t at, size_t n, size_t value) {
    for (size_t i = n - 1; i-- > 0; value /= 8) block[at + i] = static_cast<char>('0' + value % 8);
  };
  octal(100, 8, 0644);
  octal(124, 12, content.size());
  block[156] = '0';
  block.replace(257, 6, std::string("ustar\0", 6));
  std::fill_n(block.begin() + 148, 8, ' ');
  size_t sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  octal(148, 7, sum);
  block[154] = '\0';
  return block + content + std::string((512 - content.size() % 512) % 512, '\0');
}

void write_batches(const TemporaryFolder& folder) {
  for (int i = 1; i <= 5; ++i) {
    folder.write("data_batch_" + std::to_string(i) + ".bin", record({i}) + record({i + 4}));
  }
  folder.write("test_batch.bin", record({9}));
}

}  // namespace

TEST_CASE("CIFAR-10 is read from its folder, planes interleaved") {
  TemporaryFolder folder;
  write_batches(folder);
  const auto train = load_cifar({folder.path().string()});
  CHECK(train->size() == 10);
  CHECK(train->labels() == std::vector<int32_t>{1, 5, 2, 6, 3, 7, 4, 8, 5, 9});
  const auto pixels = stored_pixels(*train, 3);
  CHECK(pixels.size() == 3072);
  CHECK(std::vector<int>(pixels.begin() + 33 * 3, pixels.begin() + 34 * 3) ==
        std::vector<int>{2, 82, 162});
  CHECK_THAT(train->location_of(3), Contains("data_batch_2.bin, record 1"));
  CHECK(load_cifar({folder.path().string(), true})->labels() == std::vector<int32_t>{9});
  CHECK(train->class_names().empty());
}

TEST_CASE("CIFAR is read from its archive, with the names of its classes") {
  std::string names;
  for (int i = 0; i < 20; ++i) names += "group " + std::to_string(i) + "\n";
  const std::string archive =
      tar_entry("cifar-100-binary/coarse_label_names.txt", names) +
      tar_entry("cifar-100-binary/train.bin", record({3, 99}) + record({19, 0})) +
      std::string(1024, '\0');
  const auto load = [](const std::string& bytes, CifarKind kind, bool test = false) {
    return load_cifar({"a.tar", test, kind}, ByteReader("a.tar", bytes_of(bytes)));
  };
  const auto coarse = load(archive, CifarKind::cifar100_coarse);
  CHECK(coarse->labels() == std::vector<int32_t>{3, 19});
  CHECK(coarse->class_names().at(19) == "group 19");
  const auto fine = load(archive, CifarKind::cifar100_fine);
  CHECK(fine->labels() == std::vector<int32_t>{99, 0});
  CHECK(stored_pixels(*fine, 0) == stored_pixels(*coarse, 0));

  CHECK_THAT(refusal_of([&] { load(archive, CifarKind::cifar100_fine, true); }),
             Contains("has no file test.bin"));
  CHECK_THAT(refusal_of([&] { load(archive.substr(0, 3000), CifarKind::cifar100_fine); }),
             Contains("truncated"));
  CHECK_THAT(refusal_of([&] { load(std::string(600, 'x'), CifarKind::cifar10); }),
             Contains("not a tar archive"));
  std::string damaged = archive;
  damaged[124] = '7';
  CHECK_THAT(refusal_of([&] { load(damaged, CifarKind::cifar10); }), Contains("damaged"));
}

TEST_CASE("CIFAR files that are cut, empty or have labels out of range are refused") {
  TemporaryFolder folder;
  const auto refusal = [&](const std::string& content) {
    folder.write("test_batch.bin", content);
    return refusal_of([&] { load_cifar({folder.path().string(), true}); });
  };
  CHECK_THAT(refusal(record({1}).substr(1)), Contains("3072 bytes, which is not a multiple"));
  CHECK_THAT(refusal(""), Contains("is empty"));
  CHECK_THAT(refusal(record({1}) + record({10})),
             Contains("record 1: label 10 is out of range 0 to 9"));
  CHECK_THAT(refusal_of([&] { load_cifar({folder.path().string()}); }),
             Contains("data_batch_1.bin"));
}
