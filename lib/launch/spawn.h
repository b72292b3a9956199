// Starts one child process of the launcher.
#pragma once

#include <filesystem>
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
  bool own_stdout = false;             // inherits this process's stdout instead of a pipe
  bool own_stderr = false;
  std::vector<int> cpus = {};         // to which it is bound, ascending; empty: as this process
  std::filesystem::path output = {};  // a file for both streams instead of pipes; it is emptied
};

struct ChildProcess {
  pid_t pid = 0;
  FileDescriptor out;  // read ends, non-blocking; empty if the child inherits the stream
  FileDescriptor err;
};

// The child leads its own process group, reads from /dev/null, and is killed by the kernel if the
// calling thread ends. SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are blocked in it until it has
// installed its handlers, so that none of them kills it while it starts. Does not wait: if the
// program cannot be started, the child prints the reason and exits with the code of usage.
ChildProcess spawn(const Command& command);

// Returns the path of the running program.
std::string own_executable();

}  // namespace dltrain
