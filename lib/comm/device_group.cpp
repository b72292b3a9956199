#include "comm/device_group.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "comm/host_collectives.h"

namespace dltrain {
namespace {

// The device of a rank, as sent to the others. Texts end with a zero; long ones are truncated.
struct DeviceDescription {
  std::array<char, 16> backend{};
  std::array<char, 64> identity{}, library{};
  std::array<char, 256> problem{};  // why NCCL cannot be used; empty if it can
};

template <size_t N>
void write_text(const std::string& text, std::array<char, N>& to) {
  std::copy_n(text.data(), std::min(text.size(), N - 1), to.data());
}

DeviceDescription own_description(const Engine& engine, const Device& device) {
  DeviceDescription description;
  write_text(device.properties().backend, description.backend);
  write_text(device.properties().identity, description.identity);
  if (engine.collectives == nullptr) {
    write_text("this build has no NCCL", description.problem);
    return description;
  }
  const std::string problem = engine.collectives->problem();
  write_text(problem, description.problem);
  if (problem.empty()) write_text(engine.collectives->library(), description.library);
  return description;
}

std::vector<DeviceDescription> gather_descriptions(Collectives& host,
                                                   const DeviceDescription& own) {
  std::vector<DeviceDescription> descriptions(static_cast<size_t>(host.size()));
  HostStream stream;
  host.wait(
      host.all_gather(&own, descriptions.data(), sizeof(DeviceDescription), DType::u8, stream),
      stream);
  return descriptions;
}

// Throws an error that names two ranks, unless all have the same backend.
void check_backends(const std::vector<DeviceDescription>& descriptions) {
  for (size_t r = 1; r < descriptions.size(); ++r) {
    if (descriptions[r].backend == descriptions[0].backend) continue;
    fail(ExitCode::device,
         "rank 0 computes on {} and rank {} on {}, but all ranks need the same kind of device; set "
         "'device: cpu' to use CPUs, or 'device: cuda' to see why a rank has no GPU",
         descriptions[0].backend.data(), r, descriptions[r].backend.data());
  }
}

// Returns why NCCL cannot be used; empty if it can.
std::string obstacle(const std::vector<DeviceDescription>& descriptions, bool fixed_order) {
  for (size_t r = 0; r < descriptions.size(); ++r) {
    for (size_t other = 0; other < r; ++other) {
      if (descriptions[r].identity == descriptions[other].identity) {
        return fmt::format("ranks {} and {} share one GPU ({})", other, r,
                           descriptions[r].identity.data());
      }
    }
  }
  for (size_t r = 0; r < descriptions.size(); ++r) {
    if (descriptions[r].problem[0] != 0)
      return fmt::format("rank {}: {}", r, descriptions[r].problem.data());
    if (descriptions[r].library != descriptions[0].library) {
      return fmt::format("rank 0 has {}, rank {} has {}", descriptions[0].library.data(), r,
                         descriptions[r].library.data());
    }
  }
  return fixed_order ? "NCCL does not fix the order of sums (training.reduction: fixed)" : "";
}

struct VendorId {
  uint64_t bytes = 0;  // 0: rank 0 has failed
  std::array<std::byte, kMaxVendorIdBytes> data{};
};

std::unique_ptr<CollectiveBackend> join_vendor(const VendorCollectives& vendor, Collectives& host,
                                               Device& device) {
  VendorId id;
  std::exception_ptr failure;
  if (host.rank() == 0) {
    try {
      const std::vector<std::byte> made = vendor.make_id();
      check_internal(made.size() <= id.data.size(), "an id of {} bytes", made.size());
      std::copy(made.begin(), made.end(), id.data.begin());
      id.bytes = made.size();
    } catch (const Error&) {
      failure = std::current_exception();
    }
  }
  HostStream stream;
  host.wait(host.broadcast(&id, sizeof id, DType::u8, 0, stream), stream);
  if (failure) std::rethrow_exception(failure);
  if (id.bytes == 0) fail(ExitCode::rank, "rank 0 could not create the group of GPUs");
  return vendor.join(device, std::span(id.data).first(id.bytes), host.rank(), host.size());
}

}  // namespace

CollectiveBackendChoice choose_collective_backend(Collectives& host, const Engine& engine,
                                                  const Device& device,
                                                  CollectiveBackendKind wanted, bool fixed_order) {
  const std::vector<DeviceDescription> descriptions =
      gather_descriptions(host, own_description(engine, device));
  check_backends(descriptions);
  CollectiveBackendChoice choice;
  choice.on_gpus = std::string_view(descriptions[0].backend.data()) == "cuda";
  if (!choice.on_gpus) return choice;
  const std::string why_not = obstacle(descriptions, fixed_order);
  if (wanted == CollectiveBackendKind::nccl && !why_not.empty()) {
    fail(ExitCode::usage, "parallelism.collectives: nccl: {}", why_not);
  }
  choice.vendor = wanted != CollectiveBackendKind::staged && why_not.empty();
  choice.note = fmt::format("{} ranks on GPUs, connected by {}", host.size(),
                            choice.vendor ? descriptions[0].library.data() : "host memory");
  const bool unexpected =
      wanted == CollectiveBackendKind::automatic && !choice.vendor && !fixed_order;
  if (unexpected) {
    choice.warning = fmt::format(
        "the GPUs exchange data through host memory, which is slow: {} (set "
        "parallelism.collectives: staged to accept this without a warning)",
        why_not);
  }
  return choice;
}

void join_device_group(StreamCollectives& group, const CollectiveBackendChoice& choice,
                       Collectives& host, const Engine& engine, Device& device, RankWatch* watch) {
  std::unique_ptr<CollectiveBackend> collective_backend =
      choice.vendor
          ? join_vendor(*engine.collectives, host, device)
          : make_staged_backend(device, dynamic_cast<HostCollectives&>(host).make_unobserved());
  group.join(std::move(collective_backend), host, watch, RankWatch::kFirstDeviceGroup);
}

}  // namespace dltrain
