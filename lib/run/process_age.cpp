#include "run/process_age.h"

#include <fstream>
#include <sstream>
#include <string>

#include <time.h>
#include <unistd.h>

namespace dltrain {

double process_age_ms() {
  // Field 22 of /proc/self/stat, counted after the command name, which may hold spaces.
  std::ifstream file("/proc/self/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::istringstream rest(text.substr(text.rfind(')') + 1));
  std::string field;
  for (int i = 0; i < 20; ++i) rest >> field;
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const double started =
      field.empty() ? 0 : std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return (static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 - started) *
         1e3;
}

double peak_memory_mib() {
  // VmHWM, because the figure of getrusage() begins with that of the parent process.
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024.0;
  }
  return 0;
}

}  // namespace dltrain
