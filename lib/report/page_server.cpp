#include "report/page_server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include <poll.h>
#include <sys/socket.h>

#include "base/error.h"
#include "base/utf8.h"

namespace dltrain {
namespace {

constexpr size_t kMostConnections = 32, kMostRequest = 8192;
constexpr std::chrono::seconds kMostTime{10};  // of a connection

FileDescriptor listen_here(int port) {
  try {
    return listen_on("127.0.0.1", port);
  } catch (const Error& error) {
    fail(ExitCode::usage, "{}; choose another port with --port", error.what());
  }
}

// Takes the next line of a header, without its end.
std::string_view take_line(std::string_view& rest) {
  const size_t end = std::min(rest.find("\r\n"), rest.size());
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 2, rest.size()));
  return line;
}

// The value of the only Host line; nothing if there is none or more than one.
std::optional<std::string> host_of(std::string_view header) {
  std::optional<std::string> host;
  while (!header.empty()) {
    const std::string line = lower_ascii(take_line(header));
    if (!line.starts_with("host:")) continue;
    if (host) return std::nullopt;
    const size_t from = line.find_first_not_of(" \t", 5);
    host = from == line.npos ? "" : line.substr(from, line.find_last_not_of(" \t") + 1 - from);
  }
  return host;
}

bool is_this_machine(std::string_view host) {
  const std::string_view port = host.substr(std::min(host.find(':'), host.size()));
  const std::string_view name = host.substr(0, host.size() - port.size());
  const bool digits = port.find_first_not_of("0123456789", 1) == port.npos;
  return digits && (name == "localhost" || name == "127.0.0.1");
}

std::string answer_of(std::string_view status, std::string_view type, const std::string& content) {
  return fmt::format(
             "HTTP/1.1 {}\r\nContent-Type: {}; charset=utf-8\r\nContent-Length: {}\r\n"
             "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
             "Cross-Origin-Resource-Policy: same-origin\r\nX-Frame-Options: DENY\r\n"
             "Connection: close\r\n\r\n",
             status, type, content.size()) +
         content;
}

}  // namespace

PageServer::PageServer(int port, Content page, Content data)
    : listener_(listen_here(port)), page_(std::move(page)), data_(std::move(data)) {}

std::string PageServer::answer_to(const std::string& request) const {
  std::string_view rest = request;
  const std::string_view line = take_line(rest);
  const auto host = host_of(rest);
  const bool asks = host && is_this_machine(*host);
  const auto gets = [&](std::string_view path) {
    return line == fmt::format("GET {} HTTP/1.1", path) ||
           line == fmt::format("GET {} HTTP/1.0", path);
  };
  try {
    if (asks && gets("/")) return answer_of("200 OK", "text/html", page_());
    if (asks && gets("/data.json")) return answer_of("200 OK", "application/json", data_());
  } catch (const std::exception&) {  // such as a run that is being removed
  }
  return answer_of("404 Not Found", "text/plain", "not found\n");
}

void PageServer::take_connections() {
  for (size_t i = 0; i < kMostConnections; ++i) {
    FileDescriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) return;
    if (connections_.size() == kMostConnections) connections_.erase(connections_.begin());
    connections_.push_back({.fd = std::move(fd), .end = Clock::now() + kMostTime});
  }
}

bool PageServer::read_request(Connection& connection) const {
  std::array<char, 2048> part{};
  const ssize_t count = recv(connection.fd.get(), part.data(), part.size(), 0);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return false;
  if (count > 0) connection.request.append(part.data(), static_cast<size_t>(count));
  const size_t end = connection.request.find("\r\n\r\n");
  if (end == std::string::npos && connection.request.size() <= kMostRequest) return true;
  // A request without an end is too long; it is answered as one for no page.
  connection.answer = answer_to(end == std::string::npos ? "" : connection.request.substr(0, end));
  return write_answer(connection);
}

bool PageServer::write_answer(Connection& connection) {
  const std::string_view rest = std::string_view(connection.answer).substr(connection.sent);
  const ssize_t count = send(connection.fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  connection.sent += static_cast<size_t>(count);
  return connection.sent < connection.answer.size();
}

void PageServer::serve(int milliseconds) {
  std::vector<pollfd> waiting{{listener_.get(), POLLIN, 0}};
  for (const Connection& connection : connections_) {
    const bool reads = connection.answer.empty();
    waiting.push_back({connection.fd.get(), static_cast<short>(reads ? POLLIN : POLLOUT), 0});
  }
  if (poll(waiting.data(), waiting.size(), milliseconds) < 0) return;
  for (size_t i = 0; i < connections_.size(); ++i) {
    Connection& connection = connections_[i];
    bool goes_on = Clock::now() <= connection.end;
    if (goes_on && waiting[i + 1].revents != 0) {
      goes_on = connection.answer.empty() ? read_request(connection) : write_answer(connection);
    }
    if (!goes_on) connection.fd.reset();
  }
  std::erase_if(connections_, [](const Connection& connection) { return !connection.fd; });
  if (waiting[0].revents != 0) take_connections();
}

}  // namespace dltrain
