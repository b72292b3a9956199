#include "tensor/safetensors_set.h"

#include "catch.h"
#include "temporary_folder.h"

using namespace dltrain;

namespace {

void write_shard(const std::filesystem::path& path, const std::vector<std::string>& names) {
  FileWriter file(path);
  std::vector<NamedTensor> tensors;
  for (const std::string& name : names) tensors.push_back({name, {Shape{1}, DType::f32}});
  SafetensorsWriter writer(file, tensors);
  const float value = 1;
  for (const std::string& name : names) writer.write(name, std::as_bytes(std::span(&value, 1)));
  writer.finish();
  file.close();
}

}  // namespace

TEST_CASE("tensors of a file, of a folder with one, and of shards") {
  TemporaryFolder folder;
  write_shard(folder / "a.safetensors", {"x", "y"});
  write_shard(folder / "b.safetensors", {"z"});
  CHECK(SafetensorsSet(folder / "a.safetensors", ExitCode::storage).tensors().size() == 2);
  CHECK_THROWS_WITH(SafetensorsSet(folder.path(), ExitCode::storage),
                    Catch::Contains("has neither model.safetensors nor"));
  folder.write("model.safetensors.index.json",
               R"({"weight_map": {"z": "b.safetensors", "x": "a.safetensors",
                                  "y": "a.safetensors"}})");
  const SafetensorsSet shards(folder.path(), ExitCode::storage);
  REQUIRE(shards.tensors().size() == 3);
  for (const auto& [file, entry] : shards.tensors()) CHECK(file->data(*entry).size() == 4);
  folder.write("model.safetensors.index.json",
               R"({"weight_map": {"z": "b.safetensors", "x": "a.safetensors"}})");
  CHECK_THROWS_WITH(SafetensorsSet(folder.path(), ExitCode::storage),
                    Catch::Contains("does not list the tensor 'y' of a.safetensors"));
  // One file is preferred, as in transformers.
  write_shard(folder / "model.safetensors", {"w"});
  CHECK(SafetensorsSet(folder.path(), ExitCode::storage).tensors().size() == 1);
}

TEST_CASE("an index names files of its folder, and each tensor once") {
  const auto parse = [](const std::string& text) {
    return parse_safetensors_index(text, "index", ExitCode::data);
  };
  CHECK(parse(R"({"weight_map": {"a": "x.safetensors"}, "a": 1})").at("a") == "x.safetensors");
  for (const char* shard : {"../x.safetensors", "/x.safetensors", "a/b.safetensors", "x.bin",
                            ".safetensors", "x\\u0000.safetensors"}) {
    CHECK_THROWS_WITH(parse(fmt::format(R"({{"weight_map": {{"a": "{}"}}}})", shard)),
                      Catch::Contains("no name of a safetensors file"));
  }
  CHECK_THROWS_WITH(parse(R"({"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}})"),
                    Catch::Contains("lists the tensor 'a' twice"));
  CHECK_THROWS_WITH(parse(R"({"weight_map": []})"), Catch::Contains("has no weight_map"));
  CHECK_THROWS_WITH(parse("nonsense"), Catch::Contains("is not a JSON object"));
}
