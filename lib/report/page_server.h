// Serves a page and its data to browsers of this machine, for `dltrain watch`.
//
// It listens on 127.0.0.1 and answers `GET /` and `GET /data.json` if the Host is localhost or
// 127.0.0.1, so that no name of another site reaches it (DNS rebinding). It answers anything else
// with 404. The number of connections, the bytes of a request and the time of a connection are
// bounded.
//
// Threads: used by one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/socket.h"

namespace dltrain {

class PageServer {
 public:
  using Content = std::function<std::string()>;
  // Port 0: any free one. Throws Error(usage) if the port is in use.
  PageServer(int port, Content page, Content data);

  int port() const { return bound_port(listener_.get()); }
  // Waits for requests and transfers for at most `milliseconds`, and serves them.
  void serve(int milliseconds);

 private:
  struct Connection {
    FileDescriptor fd;
    Clock::time_point end;
    std::string request = {}, answer = {};
    size_t sent = 0;
  };

  void take_connections();
  // Both return whether the connection goes on.
  bool read_request(Connection& connection) const;
  static bool write_answer(Connection& connection);
  std::string answer_to(const std::string& request) const;

  FileDescriptor listener_;
  Content page_, data_;
  std::vector<Connection> connections_;  // the oldest first
};

}  // namespace dltrain
