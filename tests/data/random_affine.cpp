#include "data/random_affine.h"

#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

#include "catch.h"
#include "tensor/shape.h"

namespace dltrain {
namespace {

std::vector<float> ramp_random_affine(int64_t size) {
  std::vector<float> values(static_cast<size_t>(size));
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

ImageSize size_of(const Shape& shape) {
  return {shape[0], shape[1], shape.rank() == 3 ? shape[2] : 1};
}

std::vector<float> changed_random_affine(const RandomAffineOptions& options, const Shape& shape,
                                         uint64_t seed, int64_t position) {
  const RandomAffine affine(options, size_of(shape));
  std::vector<float> image = ramp_random_affine(shape.elements()), memory;
  affine.apply(seed, position, image.data(), memory);
  return image;
}

struct Mass {
  double total = 0, x = 0, y = 0;  // x and y: of its centre, from the image's
};

Mass mass_of(const std::vector<float>& image, size_t width) {
  Mass mass;
  const double centre = static_cast<double>(width - 1) / 2;
  for (size_t i = 0; i < image.size(); ++i) {
    mass.total += image[i];
    mass.x += image[i] * (static_cast<double>(i % width) - centre);
    mass.y += image[i] * (static_cast<double>(i / width) - centre);
  }
  mass.x /= mass.total;
  mass.y /= mass.total;
  return mass;
}

}  // namespace

TEST_CASE("a random affine change of no extent leaves the image as it is") {
  const Shape shape{5, 4, 3};
  CHECK(changed_random_affine({}, shape, 1, 7) == ramp_random_affine(shape.elements()));
}

TEST_CASE("a random affine change depends on seed and position only") {
  const RandomAffineOptions options{.rotate = 15, .scale = 0.15, .translate = 1};
  const Shape shape{8, 8, 2};
  const RandomAffine affine(options, size_of(shape));
  std::vector<float> image = ramp_random_affine(shape.elements()), memory;
  affine.apply(1, 12, image.data(), memory);  // one that must leave no trace
  image = ramp_random_affine(shape.elements());
  affine.apply(1, 13, image.data(), memory);
  CHECK(image == changed_random_affine(options, shape, 1, 13));
  CHECK(image != changed_random_affine(options, shape, 1, 12));
  CHECK(image != changed_random_affine(options, shape, 2, 13));
}

TEST_CASE("channels of an image move together") {
  const RandomAffineOptions options{.rotate = 20, .scale = 0.2, .translate = 2};
  const std::vector<float> plain = changed_random_affine(options, {6, 6}, 3, 5);
  const RandomAffine affine(options, {6, 6, 2});
  std::vector<float> image, memory;
  for (float value : ramp_random_affine(36)) image.insert(image.end(), {value, 10 * value});
  affine.apply(3, 5, image.data(), memory);
  for (size_t i = 0; i < plain.size(); ++i) {
    CHECK(image[2 * i] == plain[i]);
    CHECK(image[2 * i + 1] == Approx(10 * plain[i]).margin(1e-4));
  }
}

TEST_CASE("a random shift stays within its limit and uses the whole range") {
  const RandomAffine affine({.translate = 2}, {9, 9, 1});
  std::vector<float> memory;
  double least = 0, most = 0;
  for (int64_t position = 0; position < 500; ++position) {
    std::vector<float> image(81, 0.0f);
    image[4 * 9 + 4] = 1;
    affine.apply(4, position, image.data(), memory);
    const Mass mass = mass_of(image, 9);
    REQUIRE(mass.total == Approx(1).epsilon(1e-5));
    least = std::min(least, mass.x);
    most = std::max(most, mass.x);
  }
  CHECK(least == Approx(-2).margin(0.05));
  CHECK(most == Approx(2).margin(0.05));
}

TEST_CASE("a random rotation keeps distances and stays within its angle") {
  const RandomAffine affine({.rotate = 30}, {41, 41, 1});
  std::vector<float> memory;
  double largest = 0;
  for (int64_t position = 0; position < 300; ++position) {
    std::vector<float> image(41 * 41, 0.0f);
    image[20 * 41 + 35] = 1;  // a bright pixel, 15 to the right of the centre
    affine.apply(5, position, image.data(), memory);
    const Mass mass = mass_of(image, 41);
    REQUIRE(std::hypot(mass.x, mass.y) == Approx(15).margin(0.5));
    largest = std::max(largest, std::abs(std::atan2(mass.y, mass.x)) * 180 / std::numbers::pi);
  }
  CHECK(largest == Approx(30).margin(1.5));
}

TEST_CASE("a random scale stretches height and width within its limit") {
  const RandomAffine affine({.scale = 0.5}, {41, 41, 1});
  std::vector<float> memory;
  double least = 99, most = 0;
  for (int64_t position = 0; position < 300; ++position) {
    std::vector<float> image(41 * 41, 0.0f);
    image[20 * 41 + 30] = 1;  // 10 to the right: to be found between 10 / 1.5 and 10 / 0.5
    affine.apply(6, position, image.data(), memory);
    const Mass mass = mass_of(image, 41);
    REQUIRE(mass.y == Approx(0).margin(0.01));
    least = std::min(least, mass.x);
    most = std::max(most, mass.x);
  }
  CHECK(least == Approx(10 / 1.5).margin(0.5));
  CHECK(most == Approx(10 / 0.5).margin(1.0));
}

}  // namespace dltrain
