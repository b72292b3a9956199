// Starts one child process of the launcher.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "comm/environment.h"
#include "comm/socket.h"

namespace dltrain {

struct Command {
  std::string executable;              // a path
  std::vector<std::string> arguments;  // without the program's name
  Environment environment;             // all of it
  bool own_stdout = false;             // keeps this process's stdout instead of a pipe
  bool own_stderr = false;
  std::vector<int> cpus = {};  // that it is bound to; empty: as this process
};

struct Spawned {
  pid_t pid = 0;
  FileDescriptor out;  // reading ends, non-blocking; empty where the child keeps our own
  FileDescriptor err;
};

// The child leads a process group of its own, reads from /dev/null and is killed by the kernel when
// the thread that called this ends without having waited for it. SIGINT, SIGTERM, SIGHUP, SIGUSR1
// and SIGUSR2 are blocked in it: it releases them when it has its handlers, so that none of them
// kills it while it starts. This waits for nothing: a child whose program cannot be started says so
// on its stderr and ends with the code of usage.
Spawned spawn(const Command& command);

// The path of the running program.
std::string own_executable();

}  // namespace dltrain
