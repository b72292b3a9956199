// Choices among cuBLASLt's algorithms: by its own order, or by time; kept on the disk.
#include <cstdlib>

#include <fmt/format.h>

#include "catch.h"
#include "cuda/vendor/makers.h"
#include "cuda_runtime/engine.h"
#include "cuda_runtime/fake_runtime.h"
#include "temporary_folder.h"

using namespace dltrain;

namespace {

// Until the end of the test choices are kept in a folder of their own.
struct CacheFolder {
  TemporaryFolder folder;
  CacheFolder() { ::setenv("DLTRAIN_CACHE_DIR", folder.path().c_str(), 1); }
  ~CacheFolder() { ::unsetenv("DLTRAIN_CACHE_DIR"); }
  size_t files() const {
    size_t count = 0;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder / "code", error)) {
      count += entry.is_regular_file() ? 1 : 0;
    }
    return count;
  }
};

// The number of the algorithm that is chosen for a product with n columns, and how many products
// were run to choose it.
struct Choice {
  size_t algorithm;
  int64_t runs;
  bool operator==(const Choice&) const = default;
};

Choice choose(Device& device, int64_t n) {
  const TensorSpec inputs[] = {{Shape{64, 32}, DType::bf16}, {Shape{32, n}, DType::bf16}},
                   outputs[] = {{Shape{64, n}, DType::bf16}};
  const Attributes attributes;
  const int64_t before = fake_cuda::counts().products;
  const auto kernel = make_blas_matmul({.op = "matmul",
                                        .attributes = attributes,
                                        .inputs = inputs,
                                        .outputs = outputs,
                                        .device = device});
  REQUIRE(kernel != nullptr);
  return {kernel->workspace_bytes() / 1024, fake_cuda::counts().products - before};
}

TEST_CASE("without autotune the library's first proposal is taken and nothing is run") {
  fake_cuda::reset(fake_cuda::Order::eager);
  fake_cuda::set_algorithms({5, 1, 3});
  const CacheFolder cache;
  const auto device = fake_cuda_engine().open(0);
  CHECK(choose(*device, 16) == Choice{0, 0});
  CHECK(cache.files() == 0);
}

TEST_CASE("autotune takes the fastest algorithm and keeps the choice") {
  fake_cuda::reset(fake_cuda::Order::eager);
  // One is refused when it is run; quick looks at eight only.
  fake_cuda::set_algorithms({5, -1, 3, 4, 2, 6, 7, 8, 0.5});
  const CacheFolder cache;
  const auto device = fake_cuda_engine().open(0);
  device->set_autotune(Autotune::quick);
  const Choice first = choose(*device, 24);
  CHECK(first.algorithm == 4);
  CHECK(first.runs > 8);
  CHECK(cache.files() == 1);
  CHECK(choose(*device, 24) == Choice{4, 0});  // the same shape again
  CHECK(choose(*device, 40).algorithm == 4);   // another one
  CHECK(cache.files() == 2);
  device->set_autotune(Autotune::full);
  CHECK(choose(*device, 24).algorithm == 8);
  device->set_autotune(Autotune::off);
  CHECK(choose(*device, 24) == Choice{0, 0});
}

TEST_CASE("a choice that the library no longer knows gives way to its proposal") {
  fake_cuda::reset(fake_cuda::Order::eager);
  fake_cuda::set_algorithms({5, 4, 3});
  const CacheFolder cache;
  const auto device = fake_cuda_engine().open(0);
  device->set_autotune(Autotune::quick);
  CHECK(choose(*device, 56).algorithm == 2);
  fake_cuda::set_algorithms({5, 4});
  CHECK(choose(*device, 56) == Choice{0, 0});
}

TEST_CASE("where there is no memory to time in the library's proposal is taken") {
  fake_cuda::reset(fake_cuda::Order::eager);
  fake_cuda::set_algorithms({5, 4});
  const CacheFolder cache;
  const auto device = fake_cuda_engine().open(0);
  device->set_autotune(Autotune::quick);
  fake_cuda::fail_at("cudaMalloc", 0, cudaErrorMemoryAllocation);
  CHECK(choose(*device, 72) == Choice{0, 0});
  CHECK(choose(*device, 72).algorithm == 1);
}

}  // namespace
