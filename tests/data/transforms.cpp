#include "data/transforms/transforms.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "config/bind.h"
#include "config/yaml.h"
#include "data/image_dataset.h"
#include "data/loader.h"
#include "data/memory_dataset.h"
#include "images.h"
#include "shared/host_memory.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

struct TransformsWhole {
  std::vector<std::unique_ptr<Transform>> transforms;
  void describe(Fields& f) {
    f.list_of("transforms", transforms, transform_table(), {.doc = "In order"});
  }
};

TransformList read_transforms(const std::string& list) {
  Diagnostics diagnostics;
  TransformsWhole whole;
  const auto source = std::make_shared<Source>(Source{"exp.yaml", "transforms: [" + list + "]\n"});
  if (const auto tree = read_yaml(source, 0, diagnostics)) bind(whole, *tree, diagnostics);
  diagnostics.throw_if_any();
  TransformList out;
  for (const auto& transform : whole.transforms) out.push_back(transform->clone());
  return out;
}

std::vector<uint8_t> ramp_transforms(const ImageSize& size) {
  std::vector<uint8_t> pixels(static_cast<size_t>(size.elements()));
  std::iota(pixels.begin(), pixels.end(), uint8_t{1});
  return pixels;
}

// A ramp of this size after the list, as training position `position` sees it.
WorkingImage<uint8_t> changed_transforms(const std::string& list, const ImageSize& size,
                                         int64_t position = 0) {
  static std::vector<uint8_t> pixels;
  pixels = ramp_transforms(size);
  WorkingImage<uint8_t> frame;
  frame.look_at({pixels.data(), size, size.width * size.channels});
  const Pipeline pipeline(read_transforms(list), size, false);
  pipeline.run(frame, {7, position});
  if (pipeline.output().fixed()) CHECK(frame.size() == pipeline.output());
  return frame;
}

using Bytes = std::vector<uint8_t>;

std::vector<int> numbers(const Bytes& bytes) {
  return {bytes.begin(), bytes.end()};
}

std::shared_ptr<const ImageSource> ramps(int64_t count, const ImageSize& size) {
  Bytes pixels = ramp_transforms({count, size.height * size.width, size.channels});
  std::vector<int32_t> labels(static_cast<size_t>(count));
  std::iota(labels.begin(), labels.end(), 0);
  return std::make_shared<MemoryImages>(size, std::move(pixels), std::move(labels),
                                        std::vector<std::string>{},
                                        [](int64_t i) { return "sample " + std::to_string(i); });
}

// One configuration of every kind, for 8 by 8 images.
const char* const kEvery[] = {
    "{resize: [6, 5]}",
    "{center_crop: 4}",
    "{random_crop: {size: 8, padding: 2}}",
    "{random_resized_crop: 5}",
    "horizontal_flip",
    "vertical_flip",
    "{rotation: 30}",
    "{color_jitter: {brightness: 0.5, contrast: 0.5, saturation: 0.5, hue: 0.2}}",
    "{random_erasing: 1}",
    "{cutout: 3}"};

}  // namespace

TEST_CASE("every transform is a function of seed and position alone, and says its size") {
  REQUIRE(std::size(kEvery) == transform_table().rows.size());
  const ImageSize size{8, 8, 3};
  for (size_t i = 0; i < std::size(kEvery); ++i) {
    INFO(kEvery[i]);
    const auto transform = read_transforms(kEvery[i])[0];
    const auto row =
        std::ranges::find(transform_table().rows, transform->kind, &KindRow<Transform>::name);
    REQUIRE(row != transform_table().rows.end());
    CHECK_FALSE(row->doc.empty());
    std::set<std::vector<int>> seen;
    for (int64_t position = 0; position < 40; ++position) {
      const Bytes once = pixels_of(changed_transforms(kEvery[i], size, position));
      changed_transforms(kEvery[i], size, position + 1);
      CHECK(pixels_of(changed_transforms(kEvery[i], size, position)) == once);
      seen.insert(numbers(once));
    }
    CHECK((seen.size() > 1) == transform->random());
  }
}

TEST_CASE("bytes and numbers are changed alike") {
  const ImageSize size{8, 8, 1};
  const Bytes bytes = ramp_transforms(size);
  const std::vector<float> reals(bytes.begin(), bytes.end());
  for (const char* list : kEvery) {
    const TransformList transforms = read_transforms(list);
    if (!transforms[0]->takes_numbers()) continue;
    INFO(list);
    for (int64_t position = 0; position < 10; ++position) {
      WorkingImage<float> frame;
      frame.look_at({reals.data(), size, 8});
      Pipeline(transforms, size, true).run(frame, {7, position});
      const auto real = pixels_of(frame);
      const Bytes whole = pixels_of(changed_transforms(list, size, position));
      REQUIRE(real.size() == whole.size());
      for (size_t i = 0; i < real.size(); ++i) {
        REQUIRE(std::abs(real[i] - static_cast<float>(whole[i])) <= 0.501f);
      }
    }
  }
}

TEST_CASE("crops cut where they say and pad what is missing") {
  const ImageSize size{4, 4, 1};
  CHECK(pixels_of(changed_transforms("{center_crop: 2}", size)) == Bytes{6, 7, 10, 11});
  CHECK(pixels_of(changed_transforms("{center_crop: {size: [2, 6], fill: 9}}", size)) ==
        Bytes{9, 5, 6, 7, 8, 9, 9, 9, 10, 11, 12, 9});
  std::set<std::vector<int>> places;
  for (int64_t i = 0; i < 400; ++i) {
    places.insert(
        numbers(pixels_of(changed_transforms("{random_crop: {size: 4, padding: 1}}", size, i))));
  }
  CHECK(places.size() == 9);
  CHECK(places.count(numbers(ramp_transforms(size))) == 1);
  places.clear();
  for (int64_t i = 0; i < 400; ++i) {
    places.insert(numbers(pixels_of(changed_transforms("{random_crop: 6}", size, i))));
  }
  CHECK(places.size() == 9);
}

TEST_CASE("flips mirror, with their probability") {
  const ImageSize size{2, 3, 2};
  int flipped = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    const Bytes out = pixels_of(changed_transforms("horizontal_flip", size, i));
    if (out != ramp_transforms(size)) {
      ++flipped;
      REQUIRE(out == Bytes{5, 6, 3, 4, 1, 2, 11, 12, 9, 10, 7, 8});
    }
  }
  CHECK(std::abs(flipped - 500) < 80);
  CHECK(pixels_of(changed_transforms("{horizontal_flip: 0}", size)) == ramp_transforms(size));
  CHECK(pixels_of(changed_transforms("{vertical_flip: 1}", size)) ==
        Bytes{7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6});
}

TEST_CASE("resizing by the shorter side keeps the proportions") {
  CHECK(changed_transforms("{resize: 8}", {16, 32, 3}).size() == ImageSize{8, 16, 3});
  CHECK(changed_transforms("{resize: 8}", {50, 4, 1}).size() == ImageSize{100, 8, 1});
  CHECK(changed_transforms("{resize: [8, 5]}", {16, 32, 3}).size() == ImageSize{8, 5, 3});
}

TEST_CASE("random resized crops keep to their area and proportions, reduced images too") {
  // The mean of a ramp along x tells where a part was; its extremes how wide it was.
  const ImageSize size{64, 64, 1};
  std::vector<uint8_t> pixels;
  for (int64_t i = 0; i < 64 * 64; ++i) pixels.push_back(static_cast<uint8_t>(i % 64 * 4));
  const Pipeline pipeline(
      read_transforms("{random_resized_crop: {size: 16, scale: [0.25, 0.25], ratio: [1, 1]}}"),
      size, false);
  double least = 255, most = 0;
  for (int64_t i = 0; i < 200; ++i) {
    WorkingImage<uint8_t> frame;
    frame.look_at({pixels.data(), size, 64});
    CHECK(pipeline.needed_scale(size, {7, i}) == Approx(0.5));
    pipeline.run(frame, {7, i});
    const Bytes out = pixels_of(frame);
    CHECK(out[15] - out[0] == Approx(30 * 4).margin(3));
    least = std::min<double>(least, out[0]);
    most = std::max<double>(most, out[15]);
  }
  CHECK(least < 12);
  CHECK(most > 240);

  // The same part of a JPEG decoded at half its size looks the same.
  const auto file = golden_image("photo.jpg");
  const ImageSize full{48, 64, 3};
  const Pipeline crop(read_transforms("{random_resized_crop: {size: 8, scale: [0.5, 1]}}"), full,
                      false);
  for (int64_t i = 0; i < 20; ++i) {
    WorkingImage<uint8_t> whole = decoded(file), half = decoded(file, 3, 0.5);
    REQUIRE(half.reduced());
    crop.run(whole, {7, i});
    crop.run(half, {7, i});
    CHECK(largest_difference(pixels_of(whole), pixels_of(half)) < 40);
  }
}

TEST_CASE("colour jitter leaves gray gray and changes in the stated range") {
  const ImageSize size{1, 1, 3};
  for (int64_t i = 0; i < 50; ++i) {
    const Bytes hue = pixels_of(changed_transforms("{color_jitter: {hue: 0.5}}", size, i));
    CHECK(*std::max_element(hue.begin(), hue.end()) == 3);
    CHECK(*std::min_element(hue.begin(), hue.end()) == 1);
  }
  const Bytes gray(12, 100);
  WorkingImage<uint8_t> frame;
  frame.look_at({gray.data(), {2, 2, 3}, 6});
  Pipeline(read_transforms("{color_jitter: {saturation: 0.9, contrast: 0.9, hue: 0.5}}"), {2, 2, 3},
           false)
      .run(frame, {1, 2});
  CHECK(pixels_of(frame) == gray);
  int least = 255, most = 0;
  for (int64_t i = 0; i < 300; ++i) {
    frame.look_at({gray.data(), {2, 2, 3}, 6});
    Pipeline(read_transforms("{color_jitter: {brightness: 0.3}}"), {2, 2, 3}, false)
        .run(frame, {1, i});
    least = std::min<int>(least, pixels_of(frame)[0]);
    most = std::max<int>(most, pixels_of(frame)[0]);
  }
  CHECK(least >= 70);
  CHECK(most <= 130);
  CHECK(most - least > 55);
  CHECK_THROWS_WITH(Pipeline(read_transforms("{color_jitter: {hue: 0.1}}"), {2, 2, 4}, false),
                    Contains("exp.yaml:1:15") && Contains("1 or 3 channels, not 4"));
  CHECK_THROWS_WITH(Pipeline(read_transforms("{color_jitter: {hue: 0.1}}"), {2, 2, 3}, true),
                    Contains("works on 8-bit images"));
}

TEST_CASE("held-out samples get what stands in for random changes") {
  const auto source = ramps(10, {8, 8, 1});
  const auto data = make_image_dataset(
      source,
      {.transforms = read_transforms("{random_crop: {size: 4, padding: 1}}, horizontal_flip")}, {});
  std::vector<float> middle;
  for (int y = 2; y < 6; ++y) {
    for (int x = 2; x < 6; ++x)
      middle.push_back(static_cast<float>(stored_pixels(*source, 3)[y * 8 + x]));
  }
  CHECK(gathered<float>(*data, 0, {3}) == middle);
  std::vector<float> out(16);
  const int64_t sample = 3;
  std::set<std::vector<float>> seen;
  for (int64_t position = 0; position < 30; ++position) {
    data->gather_training(0, {&sample, 1}, {1, position}, reinterpret_cast<std::byte*>(out.data()));
    seen.insert(out);
  }
  CHECK(seen.size() > 15);
  // The same through the slice that eval_fraction makes.
  const DataSplit split = split_off_eval(data, 0.7);
  CHECK(gathered<float>(*split.eval, 0, {0}) == middle);
}

TEST_CASE("images of different sizes need transforms that end in one size") {
  const ImageSize any{0, 0, 3};
  for (const char* list : {"", "{resize: 9}", "horizontal_flip"}) {
    CHECK_THROWS_WITH(Pipelines(read_transforms(list), any, false),
                      Contains("images may differ in size"));
  }
  CHECK(Pipelines(read_transforms("{resize: 9}, {center_crop: 8}"), any, false).training.output() ==
        ImageSize{8, 8, 3});
  CHECK(
      Pipelines(read_transforms("{random_resized_crop: [4, 6]}"), any, false).evaluation.output() ==
      ImageSize{4, 6, 3});
}

TEST_CASE("errors in transforms are found with their places") {
  CHECK_THROWS_WITH(read_transforms("{resize: {}}"), Contains("missing key 'size'"));
  CHECK_THROWS_WITH(read_transforms("{resize: 0}"), Contains("exp.yaml:1"));
  CHECK_THROWS_WITH(read_transforms("{random_resized_crop: {size: 4, scale: [1, 0.5]}}"),
                    Contains("scale must be in ascending order"));
  CHECK_THROWS_WITH(read_transforms("horizontal_flop"),
                    Contains("did you mean 'horizontal_flip'?"));
  CHECK_THROWS_WITH(read_transforms("{rotation: 200}"), Contains("180"));
}

TEST_CASE(
    "training batches with transforms and mixing are the same for every layout and worker count") {
  const auto device = make_host_device("cpu", "");
  const auto data = make_image_dataset(
      ramps(10, {8, 8, 1}),
      {.transforms =
           read_transforms("{random_crop: {size: 6, padding: 1}}, horizontal_flip, {cutout: 2}")},
      {.scale = 1.0 / 255});
  const MixingOptions both{.mixup = {.alpha = 0.4}, .cutmix = {.alpha = 1, .probability = 0.7}};
  for (const MixingOptions& mixing : {MixingOptions{}, both}) {
    const bool mixed = mixing.active();
    const size_t target = mixed ? 10 : 1;
    std::vector<float> expected_images, expected_targets;
    for (int64_t micro : {8, 1, 2, 4}) {
      for (int workers : {0, 1, 3}) {
        std::vector<float> images(3 * 8 * 36), targets(3 * 8 * target);
        for (int rank = 0; rank < (micro == 2 ? 2 : 1); ++rank) {
          TrainLoader loader(data,
                             {.global_batch = 8,
                              .micro_batch = micro,
                              .rank = rank,
                              .world = micro == 2 ? 2 : 1,
                              .seed = 5,
                              .mixing = mixing,
                              .classes = 10,
                              .workers = workers},
                             *device);
          for (int64_t i = 0; i < 3 * (micro == 2 ? 2 : 8 / micro); ++i) {
            const Batch& batch = loader.next();
            const auto* x = reinterpret_cast<const float*>(batch.fields[0]);
            std::copy_n(x, micro * 36, images.begin() + batch.position * 36);
            for (int64_t k = 0; k < micro * static_cast<int64_t>(target); ++k) {
              targets[static_cast<size_t>(batch.position) * target + static_cast<size_t>(k)] =
                  mixed ? reinterpret_cast<const float*>(batch.fields[1])[k]
                        : static_cast<float>(reinterpret_cast<const int32_t*>(batch.fields[1])[k]);
            }
            CHECK(batch.valid_targets == 8);
          }
        }
        if (expected_images.empty()) {
          expected_images = images;
          expected_targets = targets;
        }
        CHECK(images == expected_images);
        CHECK(targets == expected_targets);
      }
    }
    if (!mixed) continue;
    int between = 0;
    for (size_t row = 0; row < 24; ++row) {
      const auto begin = expected_targets.begin() + static_cast<std::ptrdiff_t>(row * 10);
      CHECK(std::accumulate(begin, begin + 10, 0.0) == Approx(1).epsilon(1e-6));
      between += *std::max_element(begin, begin + 10) < 0.999f;
    }
    CHECK(between > 8);
  }
}

TEST_CASE("targets that are images are not left behind by transforms that move pixels") {
  const auto data_of = [](const Shape& target) {
    const auto values = [](const Shape& shape) {
      return std::vector<float>(static_cast<size_t>(shape.elements()));
    };
    const Shape image{4, 4, 1};
    std::vector<FieldSpec> fields{{kInputField, {image, DType::f32}},
                                  {kTargetField, {target, DType::f32}}};
    std::vector<FieldValues> both{values(image), values(target)};
    return std::make_shared<MemoryDataset>(std::move(fields), std::move(both),
                                           [](int64_t) { return std::string("here"); });
  };
  for (const char* moves :
       {"horizontal_flip", "{random_crop: 2}", "{resize: 2}", "{rotation: 9}"}) {
    const SampleTransforms changes{.transforms = read_transforms(moves), .random_affine = {}};
    CHECK_THROWS_WITH(transform_samples(data_of({4, 4}), changes),
                      Contains("exp.yaml:1:") && Contains("moves pixels of the inputs"));
    CHECK_NOTHROW(transform_samples(data_of({1}), changes));
  }
  // Targets that were made for the size that comes out; a change that leaves pixels in their
  // places.
  CHECK_NOTHROW(transform_samples(
      data_of({2, 2}), {.transforms = read_transforms("{resize: 2}"), .random_affine = {}}));
  CHECK_NOTHROW(transform_samples(
      data_of({4, 4}), {.transforms = read_transforms("random_erasing"), .random_affine = {}}));
  RandomAffineOptions affine;
  affine.rotate = 5;
  CHECK_THROWS_WITH(transform_samples(data_of({4, 4}), {.transforms = {}, .random_affine = affine}),
                    Contains("random_affine moves pixels"));
}
