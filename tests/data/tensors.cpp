#include "data/tensors.h"

#include <array>

#include "base/error.h"
#include "catch.h"
#include "data/synthetic.h"
#include "refusal.h"
#include "temporary_folder.h"
#include "tensor/safetensors.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

struct TensorsNamed {
  std::string name;
  TensorSpec spec;
  std::vector<std::byte> bytes;
};

template <typename T>
TensorsNamed tensor(const std::string& name, DType dtype, Shape shape, std::vector<T> values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {name, {shape, dtype}, {bytes.begin(), bytes.end()}};
}

std::string write_tensors(const TemporaryFolder& folder, const std::vector<TensorsNamed>& tensors) {
  const auto path = folder / "t.safetensors";
  FileWriter file(path);
  std::vector<NamedTensor> names;
  for (const TensorsNamed& t : tensors) names.push_back({t.name, t.spec});
  SafetensorsWriter writer(file, names);
  for (const TensorsNamed& t : tensors) writer.write(t.name, t.bytes);
  writer.finish();
  file.close();
  return path.string();
}

template <typename T>
std::vector<T> field(const Dataset& data, int index, std::vector<int64_t> samples) {
  std::vector<T> out(samples.size() *
                     static_cast<size_t>(data.fields()[index].sample.shape.elements()));
  data.gather(index, samples, reinterpret_cast<std::byte*>(out.data()));
  return out;
}

std::string refusal_tensors(const TensorsOptions& options) {
  return refusal_of([&] { load_tensors(options); });
}

}  // namespace

TEST_CASE("tensors are read in file order under the model's input names") {
  TemporaryFolder folder;
  const std::string path = write_tensors(
      folder, {tensor<int64_t>("ids", DType::i64, {2, 3}, {1, 2, 3, 4, 5, 6}),
               tensor<float>("x", DType::f32, {2, 1}, {0.5f, -1}),
               tensor<int32_t>("y", DType::i32, {2, 3}, {1, -100, -100, 2, 3, -100})});
  const auto data = load_tensors(
      {.path = path, .inputs = {{"input_ids", "ids"}, {"extra", "x"}}, .targets = "y"});
  CHECK(data->size() == 2);
  REQUIRE(data->fields().size() == 3);
  CHECK(data->fields()[0].name == "input_ids");
  CHECK(to_string(data->fields()[0].sample) == "i32[3]");
  CHECK(to_string(data->fields()[1].sample) == "f32[1]");
  CHECK(data->fields()[2].name == "target");
  CHECK(field<int32_t>(*data, 0, {1, 0}) == std::vector<int32_t>{4, 5, 6, 1, 2, 3});
  CHECK(field<float>(*data, 1, {0, 1}) == std::vector<float>{0.5f, -1});
  CHECK(field<int32_t>(*data, 2, {0, 1}) == std::vector<int32_t>{1, -100, -100, 2, 3, -100});
  CHECK(data->label_bound() == 4);
  CHECK_THROWS_WITH(data->check_labels(3), Contains("sample 1: label 3 does not fit"));
}

TEST_CASE("small types are widened, bytes are scaled pixels") {
  TemporaryFolder folder;
  const std::string path =
      write_tensors(folder, {tensor<uint8_t>("u8", DType::u8, {2, 1}, {0, 255}),
                             tensor<uint16_t>("f16", DType::f16, {2, 1}, {0xC000, 0x0001}),
                             tensor<uint16_t>("bf16", DType::bf16, {2, 1}, {0x3F80, 0xC040}),
                             tensor<double>("f64", DType::f64, {2}, {1.5, 2.5}),
                             tensor<uint16_t>("u16", DType::u16, {2, 1}, {65535, 1})});
  const auto data = load_tensors({.path = path,
                                  .inputs = {{"a", "u8"}, {"d", "u16"}},
                                  .targets = "f64",
                                  .scaling = {.scale = 1.0 / 255}});
  CHECK(field<float>(*data, 0, {0, 1}) == std::vector<float>{0, 1});
  CHECK(field<int32_t>(*data, 1, {0}) == std::vector<int32_t>{65535});
  CHECK(field<float>(*data, 2, {1}) == std::vector<float>{2.5f});
  CHECK(data->label_bound() == 0);
  const auto halves =
      load_tensors({.path = path, .inputs = {{"a", "f16"}, {"b", "bf16"}}, .targets = "f64"});
  CHECK(field<float>(*halves, 0, {0, 1}) == std::vector<float>{-2.0f, 0x1p-24f});
  CHECK(field<float>(*halves, 1, {0, 1}) == std::vector<float>{1.0f, -3.0f});
}

TEST_CASE("ids that a model does not know are refused with their place") {
  TemporaryFolder folder;
  const auto path =
      write_tensors(folder, {tensor<int32_t>("ids", DType::i32, {2, 3}, {0, 4, 2, 1, 5, 3}),
                             tensor<int64_t>("y", DType::i64, {2}, {0, 1})});
  const auto data = load_tensors({.path = path, .inputs = {{"input", "ids"}}, .targets = "y"});
  CHECK_THROWS_WITH(data->check_ids(0, 4), Contains("sample 0: id 4 of input does not fit"));
  CHECK_THROWS_WITH(data->check_ids(0, 5), Contains("sample 1: id 5 of input"));
  const auto first = slice(data, 0, 1);
  CHECK_NOTHROW(first->check_ids(0, 5));
}

TEST_CASE("tensors that do not fit or hold bad values are refused with their place") {
  TemporaryFolder folder;
  const auto path =
      write_tensors(folder, {tensor<float>("x", DType::f32, {2, 2}, {1, 2, 3, std::nanf("")}),
                             tensor<float>("ok", DType::f32, {2, 2}, {1, 2, 3, 4}),
                             tensor<int64_t>("y3", DType::i64, {3}, {0, 1, 2}),
                             tensor<int64_t>("y", DType::i64, {2}, {0, 5}),
                             tensor<int64_t>("huge", DType::i64, {2}, {0, int64_t{1} << 40}),
                             tensor<int64_t>("scalar", DType::i64, {}, {0}),
                             tensor<float>("none", DType::f32, {2, 0}, {})});
  const auto with = [&](const std::string& x, const std::string& y) {
    return TensorsOptions{.path = path, .inputs = {{"input", x}}, .targets = y};
  };
  CHECK_THAT(refusal_tensors(with("x", "y")),
             Contains("sample 1 (tensor 'x', element 1 of the sample): nan is not a finite f32"));
  CHECK_THAT(refusal_tensors(with("ok", "y3")), Contains("'y3' i64[3] has 3 samples, 'ok' has 2"));
  CHECK_THAT(refusal_tensors(with("ok", "huge")), Contains("label 1099511627776 is out of range"));
  CHECK_THAT(refusal_tensors(with("ok", "missing")), Contains("no tensor 'missing'"));
  CHECK_THAT(refusal_tensors(with("scalar", "y")), Contains("no dimension for the samples"));
  CHECK_THAT(refusal_tensors(with("none", "y")), Contains("is empty"));
  TensorsOptions options = with("ok", "y");
  options.classes = 5;
  CHECK_THAT(refusal_tensors(options), Contains("label 5 is out of range 0 to 4"));
  CHECK_THAT(refusal_tensors({.path = (folder / "no").string()}), Contains("cannot open"));
}

TEST_CASE("arrays of .npy files are inputs and targets without a safetensors file") {
  TemporaryFolder folder;
  const auto array = [&](const char* name, const std::string& header, const auto& values) {
    std::string content("\x93NUMPY\x01\x00", 8);
    content += static_cast<char>(header.size());
    content += '\0';
    content += header;
    content.append(reinterpret_cast<const char*>(values.data()), sizeof(values));
    return folder.write(name, content).string();
  };
  const std::string x = array("x.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2)}",
                              std::array<uint8_t, 4>{1, 2, 3, 4});
  const std::string y = array("y.npy", "{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}",
                              std::array<int64_t, 2>{1, 0});
  const auto data = load_tensors({.inputs = {{"input", x}}, .targets = y});
  CHECK(field<float>(*data, 0, {1}) == std::vector<float>{3, 4});
  CHECK(field<int32_t>(*data, 1, {0}) == std::vector<int32_t>{1});
  CHECK_THAT(refusal_tensors({.inputs = {{"input", (folder / "no.npy").string()}}, .targets = y}),
             Contains("no.npy: cannot open"));
}

TEST_CASE("synthetic samples depend on the seed and the sample number only") {
  const SyntheticOptions options{.shape = {3, 2}, .classes = 4, .samples = 100, .seed = 5};
  const auto data = make_synthetic(options);
  SyntheticOptions more = options;
  more.samples = 200;
  CHECK(field<float>(*data, 0, {7, 99}) == field<float>(*make_synthetic(more), 0, {7, 99}));
  more.seed = 6;
  CHECK(field<float>(*data, 0, {7}) != field<float>(*make_synthetic(more), 0, {7}));
  CHECK(field<int32_t>(*data, 1, {0, 1, 5}) == std::vector<int32_t>{0, 1, 1});
  double sum = 0, squares = 0;
  const auto large = make_synthetic({.shape = {1000}, .classes = 50, .samples = 100});
  for (int64_t i = 0; i < 100; ++i) {
    for (float value : field<float>(*large, 0, {i})) sum += value, squares += value * value;
  }
  CHECK(std::abs(sum / 1e5) < 0.03);
  CHECK(squares / 1e5 == Approx(2.0).margin(0.05));
  CHECK_THROWS_AS(make_synthetic({.shape = {1 << 30, 1 << 30}}), Error);
}

TEST_CASE("the last fraction of a dataset is held out") {
  const auto whole = make_synthetic({.shape = {1}, .classes = 100, .samples = 10});
  const DataSplit split = split_off_eval(whole, 0.25);
  CHECK(split.train->size() == 7);
  CHECK(split.eval->size() == 3);
  CHECK(field<int32_t>(*split.eval, 1, {0, 2}) == std::vector<int32_t>{7, 9});
  CHECK(split.eval->location_of(0) == "synthetic data, sample 7");
  CHECK(split_off_eval(whole, 0.001).eval->size() == 1);
  CHECK_THROWS_AS(split_off_eval(slice(whole, 0, 1), 0.5), Error);
}
