#include "gpu_check/collectives.h"

#include <cstring>
#include <functional>

#include "base/error.h"
#include "comm/stream_collectives.h"
#include "comm/world.h"

namespace dltrain {
namespace {

constexpr size_t kCount = 1000;

// Bytes that are small numbers in every dtype: of one rank, nothing is ever added.
std::vector<std::byte> pattern(DType dtype) {
  std::vector<std::byte> bytes(kCount * dtype_size(dtype));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 % 59);
  return bytes;
}

// Uploads the pattern to the first of two blocks, runs, and looks for it in both.
std::string run_one(Device& device, Collectives& group, DType dtype,
                    const std::function<Collectives::Ticket(void*, void*, Stream&)>& operation) {
  const std::vector<std::byte> wanted = pattern(dtype);
  const Buffer input(device, wanted.size()), output(device, wanted.size());
  const auto stream = device.make_stream();
  for (const Buffer* block : {&input, &output}) {
    device.copy(block->data(), wanted.data(), wanted.size(), *stream);
  }
  try {
    group.wait(operation(input.data(), output.data(), *stream), *stream);
    for (const Buffer* block : {&input, &output}) {
      std::vector<std::byte> found(wanted.size());
      device.copy(found.data(), block->data(), found.size(), *stream);
      stream->synchronize();
      group.check();
      if (found != wanted) return "other bytes";
    }
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

std::vector<CollectiveCheck> check_collectives(const Engine& engine, Device& device,
                                               std::string& why) {
  why = engine.collectives == nullptr ? "this build has no NCCL" : engine.collectives->problem();
  if (!why.empty()) return {};
  const auto host = make_single(device);
  StreamCollectives group(device, 0, 1);
  const std::vector<std::byte> id = engine.collectives->make_id();
  std::unique_ptr<CollectiveBackend> backend = engine.collectives->join(device, id, 0, 1);
  const std::string name = engine.collectives->library();
  group.join(std::move(backend), *host);

  std::vector<CollectiveCheck> out;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32}) {
    const auto check = [&](const char* operation, const auto& call) {
      out.push_back(
          {name, operation, std::string(dtype_name(dtype)), run_one(device, group, dtype, call)});
    };
    check("all_reduce", [&](void* x, void*, Stream& s) {
      return group.all_reduce(x, kCount, dtype, ReduceOp::sum, s);
    });
    check("reduce_scatter", [&](void* x, void* y, Stream& s) {
      return group.reduce_scatter(x, y, kCount, dtype, ReduceOp::sum, s);
    });
    check("all_gather",
          [&](void* x, void* y, Stream& s) { return group.all_gather(x, y, kCount, dtype, s); });
    check("broadcast",
          [&](void* x, void*, Stream& s) { return group.broadcast(x, kCount, dtype, 0, s); });
  }
  return out;
}

}  // namespace dltrain
