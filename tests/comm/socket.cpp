#include "comm/socket.h"

#include <mutex>

#include <unistd.h>

#include "base/error.h"
#include "catch.h"
#include "comm/store.h"

using namespace dltrain;
using Catch::Matchers::Contains;
using std::chrono::milliseconds;

namespace {

bool has_ipv6() {
  try {
    listen_on("::1", 0);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

TEST_CASE("what listens everywhere is reached over IPv4 and over IPv6") {
  std::mutex mutex;
  std::string refused;
  StoreServer server("", 0, "sesame", [&](const std::string& address) {
    const std::lock_guard lock(mutex);
    refused = address;
  });
  for (const char* address : {"127.0.0.1", "::1"}) {
    if (std::string(address) == "::1" && !has_ipv6()) continue;
    StoreClient client({.address = address,
                        .port = server.port(),
                        .secret = "sesame",
                        .connect_timeout = milliseconds(1000)});
    client.set("key", address);
    CHECK(client.get("key") == address);
    CHECK(client.server_address() == address);
    CHECK(client.local_address() == address);
  }
  CHECK_THROWS_AS(StoreClient({.address = "127.0.0.1", .port = server.port()}), Error);
  const std::lock_guard lock(mutex);
  CHECK(refused == "127.0.0.1");
}

TEST_CASE("a server listens where its endpoint is, and everywhere where that is elsewhere") {
  CHECK(listening_address("127.0.0.1") == "127.0.0.1");
  CHECK(listening_address("192.0.2.77").empty());  // of no host
  CHECK(listening_address("no.such.host.invalid").empty());
  CHECK(is_loopback("localhost"));
  CHECK(is_loopback("127.0.1.1"));
  CHECK_FALSE(is_loopback("n01"));
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0 || !is_own_address(name)) return;
  const std::string own = local_address(listen_on(name, 0).get());
  CHECK(listening_address(name) == (is_loopback(own) ? "" : name));
}

TEST_CASE("a port that is in use on one address is in use everywhere") {
  for (const char* address : {"127.0.0.1", "::1"}) {
    if (std::string(address) == "::1" && !has_ipv6()) continue;
    const FileDescriptor other = listen_on(address, 0);
    const int port = bound_port(other.get());
    CHECK_THROWS_WITH(listen_on("", port),
                      Contains(fmt::format("port {} on this host is in use", port)));
  }
}

TEST_CASE("an endpoint is told so that its port can be told apart") {
  CHECK(endpoint_text("n01", 29500) == "n01:29500");
  CHECK(endpoint_text("10.0.0.1", 0) == "10.0.0.1:0");
  CHECK(endpoint_text("fd00::2", 29655) == "[fd00::2]:29655");
  CHECK_THROWS_WITH(connect_to("::1", 1, Clock::now(), {"the store"}), Contains(" at [::1]:1: "));
}
