#include "base/shortened_files.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

namespace dltrain {
namespace {

// Entries are reused but never freed, because the handler may read them at any time.
struct Mapping {
  std::atomic<uintptr_t> begin = 0;  // 0: free
  std::atomic<size_t> size = 0;
  ExitCode code = ExitCode::data;
  std::string path;
  Mapping* next = nullptr;
};

std::atomic<Mapping*> mappings = nullptr, shortened = nullptr;
std::mutex mapping_mutex;  // guards changes of entries
const auto kPage = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));

void on_bus_error(int, siginfo_t* info, void*) {
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Mapping* m = mappings; m != nullptr; m = m->next) {
    const uintptr_t begin = m->begin, end = begin + m->size, from = at / kPage * kPage;
    if (begin == 0 || at < begin || at >= end) continue;
    if (::mmap(reinterpret_cast<void*>(from), end - from, PROT_READ,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
      break;
    }
    shortened = m;
    return;
  }
  std::signal(SIGBUS, SIG_DFL);  // not a watched mapping: the signal repeats and ends the process
}

bool take_bus_errors() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  return sigaction(SIGBUS, &action, nullptr) == 0;
}

}  // namespace

void watch_mapping(std::span<const std::byte> mapped, const std::filesystem::path& path,
                   ExitCode code) {
  [[maybe_unused]] static const bool taken = take_bus_errors();
  const std::lock_guard lock(mapping_mutex);
  Mapping* m = mappings;
  while (m != nullptr && (m->begin != 0 || m == shortened)) m = m->next;
  if (m == nullptr) {
    m = std::make_unique<Mapping>().release();
    m->next = mappings;
    mappings = m;
  }
  m->code = code;
  m->path = path.string();
  m->size = mapped.size();
  m->begin = reinterpret_cast<uintptr_t>(mapped.data());
}

void forget_mapping(const std::byte* begin) {
  const std::lock_guard lock(mapping_mutex);
  for (Mapping* m = mappings; m != nullptr; m = m->next) {
    if (m->begin == reinterpret_cast<uintptr_t>(begin)) m->begin = 0;
  }
}

void check_mapped_files() {
  if (shortened.load() == nullptr) return;
  const std::lock_guard lock(mapping_mutex);
  if (const Mapping* m = shortened.exchange(nullptr)) {
    throw Error(m->code, "was shortened by another process while it was read", m->path);
  }
}

}  // namespace dltrain
