#include "comm/store.h"

#include <atomic>
#include <thread>

#include <sys/socket.h>

#include "base/error.h"
#include "base/philox.h"
#include "catch.h"
#include "comm/socket.h"

using namespace dltrain;
using std::chrono::milliseconds;

namespace {

std::string message_of(const std::function<void()>& f, ExitCode code) {
  try {
    f();
  } catch (const Error& e) {
    CHECK(e.code() == code);
    return e.what();
  }
  return "no error";
}

Clock::time_point soon() {
  return Clock::now() + std::chrono::seconds(5);
}

// True when the server closes the connection after `bytes` without sending any.
bool dropped(int port, const std::string& bytes) {
  const FileDescriptor fd = connect_to("127.0.0.1", port, soon(), {"the store"});
  send_all(fd.get(), bytes.data(), bytes.size(), soon());
  char answer;
  return receive_all(fd.get(), &answer, 1, soon()) == Transfer::closed;
}

std::string frame(const std::string& body) {
  std::string bytes;  // a length of four bytes, then the text
  for (int shift = 0; shift < 32; shift += 8) {
    bytes.push_back(static_cast<char>(body.size() >> shift));
  }
  return bytes + body;
}

}  // namespace

TEST_CASE("of several that put a new key one wins, and all learn who") {
  StoreServer server("127.0.0.1", 0);
  StoreClient a({.port = server.port()}), b({.port = server.port()});
  CHECK(a.put_new("k", "first") == "first");
  CHECK(b.put_new("k", "second") == "first");
  CHECK(a.get("k") == "first");
}

TEST_CASE("a last will is done when the connection ends, and wakes who waits for it") {
  StoreServer server("127.0.0.1", 0);
  StoreClient a({.port = server.port()});
  {
    StoreClient quiet({.port = server.port()});
    quiet.set_will("gone", "quiet");
    quiet.set_will("gone", "");
  }
  {
    StoreClient b({.port = server.port(), .prefix = "run/"});
    b.set_will("gone", "early");
    b.set_will("gone", "b");
    CHECK_FALSE(a.try_get("run/gone"));
  }
  CHECK(a.get("run/gone", milliseconds(2000)) == "b");
  {
    StoreClient c({.port = server.port(), .prefix = "run/"});
    c.set_will("gone", "c");  // too late: the key is there
  }
  CHECK(a.list("run/") == std::vector<std::string>{"b"});
  CHECK(a.get("run/gone") == "b");
  CHECK_FALSE(a.try_get("gone"));
  CHECK(a.server_address() == "127.0.0.1");
}

TEST_CASE("the store keeps values") {
  StoreServer server("127.0.0.1", 0);
  StoreClient a({.port = server.port()}), b({.port = server.port()});
  CHECK_FALSE(a.try_get("k"));
  a.set("k", std::string_view("\0 bytes\xff", 8));
  CHECK(b.get("k") == std::string_view("\0 bytes\xff", 8));
  a.set("k", "");
  CHECK(b.get("k").empty());
  a.set("big", std::string(kStoreMaxValue, 'x'));
  CHECK(b.get("big").size() == kStoreMaxValue);
  CHECK(a.local_address() == "127.0.0.1");
  CHECK_THROWS_AS(a.set("too big", std::string(kStoreMaxValue + 1, 'x')), Error);
}

TEST_CASE("a get waits for its key, up to its time") {
  StoreServer server("127.0.0.1", 0);
  StoreClient a({.port = server.port()}), b({.port = server.port()});
  std::thread setter([&] {
    std::this_thread::sleep_for(milliseconds(50));
    b.set("late", "here");
  });
  CHECK(a.get("late", milliseconds(5000)) == "here");
  setter.join();
  const auto begin = Clock::now();
  const std::string message =
      message_of([&] { a.get("never", milliseconds(100)); }, ExitCode::rank);
  CHECK(message.find("'never'") != std::string::npos);
  CHECK(Clock::now() - begin >= milliseconds(100));
  CHECK(Clock::now() - begin < milliseconds(2000));
  CHECK(a.get("late") == "here");  // the connection is still good
}

TEST_CASE("threads share a connection, and one that waits for a key delays no other") {
  StoreServer server("127.0.0.1", 0);
  StoreClient client({.port = server.port()});
  std::vector<std::thread> waiting;
  std::atomic<int> found = 0;
  for (int i = 0; i < 4; ++i) {
    waiting.emplace_back([&, i] {
      found += client.get(fmt::format("late {}", i), milliseconds(20'000)) == "here" ? 1 : 0;
    });
  }
  const auto begin = Clock::now();
  for (int i = 0; i < 100; ++i) CHECK(client.put_new(fmt::format("n {}", i), "x") == "x");
  CHECK(found == 0);
  for (int i = 3; i >= 0; --i) client.set(fmt::format("late {}", i), "here");
  for (std::thread& thread : waiting) thread.join();
  CHECK(found == 4);
  CHECK(Clock::now() - begin < milliseconds(10'000));
  CHECK(server.load().clients == 1);
}

TEST_CASE("several requests are one message, and values are listed by prefix") {
  StoreServer server("127.0.0.1", 0);
  StoreClient client({.port = server.port(), .prefix = "run/"});
  client.set("rank/1", "one");
  const uint64_t before = server.load().messages;
  const auto values =
      client.perform(std::vector<StoreRequest>{{StoreOperation::set, "rank/0", "zero"},
                                               {StoreOperation::get, "rank/9"},
                                               {StoreOperation::get, "rank/1"},
                                               {StoreOperation::list, "rank/"}});
  CHECK(server.load().messages == before + 1);
  CHECK_FALSE(values[1]);
  CHECK(values[2] == "one");
  CHECK(StoreClient::listed(*values[3]) == std::vector<std::string>{"zero", "one"});
  for (int i = 2; i < 40; ++i) client.set(fmt::format("rank/{}", i), std::string(100'000, 'x'));
  CHECK(client.list("rank/").size() == 40);  // more than a request may have
  CHECK(client.list("other").empty());
}

TEST_CASE("runs with different prefixes do not see each other") {
  StoreServer server("127.0.0.1", 0);
  StoreClient a({.port = server.port(), .prefix = "a/"}),
      b({.port = server.port(), .prefix = "b/"});
  a.set("k", "1");
  CHECK_FALSE(b.try_get("k"));
}

TEST_CASE("a wrong secret is refused by name") {
  StoreServer server("127.0.0.1", 0, "sesame");
  CHECK_NOTHROW(StoreClient({.port = server.port(), .secret = "sesame"}));
  for (const std::string wrong : {"", "sesam", "sesame2", "sesamE"}) {
    const std::string message =
        message_of([&] { StoreClient({.port = server.port(), .secret = wrong}); }, ExitCode::rank);
    CHECK(message.find("secret") != std::string::npos);
  }
}

TEST_CASE("garbage on the port is dropped and does no harm") {
  StoreServer server("127.0.0.1", 0, "s");
  CHECK(dropped(server.port(), "GET / HTTP/1.1\r\n\r\n"));
  CHECK(dropped(server.port(), std::string(4, '\xff')));
  CHECK(dropped(server.port(), frame("dltstor4s")));
  CHECK(dropped(server.port(), frame("")));
  const std::string handshake = frame("dltstor5s");
  for (uint32_t i = 0; i < 300; ++i) {
    // Half of them come as far as to be greeted, then send random or truncated requests.
    const Philox4 words = philox4x32(7, i, 0);
    std::string bytes = i % 2 ? handshake : "";
    for (uint32_t k = 0; k < words.v[0] % 64; ++k) {
      bytes.push_back(static_cast<char>(words.v[1 + k % 3] >> (k % 4 * 8)));
    }
    if (i % 4 == 1) bytes += frame(std::string("\2\xff\0\0\0key", 8));
    const FileDescriptor fd = connect_to("127.0.0.1", server.port(), soon(), {"the store"});
    send_all(fd.get(), bytes.data(), bytes.size(), soon());
  }
  StoreClient client({.port = server.port(), .secret = "s"});
  client.set("k", "v");
  CHECK(client.get("k") == "v");
}

TEST_CASE("a client says what is wrong at the other end") {
  SECTION("nobody listens") {
    int port = 0;
    { port = bound_port(listen_on("127.0.0.1", 0).get()); }
    const std::string message = message_of(
        [&] { StoreClient({.port = port, .connect_timeout = milliseconds(100)}); }, ExitCode::rank);
    CHECK(message.find(std::to_string(port)) != std::string::npos);
    CHECK(message.find("refused") != std::string::npos);
  }
  SECTION("something else listens") {
    const FileDescriptor listener = listen_on("127.0.0.1", 0);
    std::thread other([&] {
      FileDescriptor fd;
      while (!fd) fd = FileDescriptor(accept(listener.get(), nullptr, nullptr));
      send_all(fd.get(), "HTTP/1.1 400 Bad Request\r\n\r\n", 28, soon());
    });
    const std::string message =
        message_of([&] { StoreClient({.port = bound_port(listener.get())}); }, ExitCode::rank);
    other.join();
    CHECK(message.find("not a dltrain store") != std::string::npos);
  }
  SECTION("the port is taken") {
    const FileDescriptor listener = listen_on("127.0.0.1", 0);
    const std::string message =
        message_of([&] { StoreServer("127.0.0.1", bound_port(listener.get())); }, ExitCode::rank);
    CHECK(message.find("in use") != std::string::npos);
  }
  SECTION("the server ends") {
    auto server = std::make_unique<StoreServer>("127.0.0.1", 0);
    StoreClient client({.port = server->port()});
    server.reset();
    const std::string first = message_of([&] { client.get("k"); }, ExitCode::rank);
    CHECK(first.find("closed") != std::string::npos);
    // The first error is repeated.
    CHECK(message_of([&] { client.get("k"); }, ExitCode::rank) == first);
  }
  SECTION("it is interrupted while the server says nothing") {
    const FileDescriptor silent = listen_on("127.0.0.1", 0);
    const auto begin = Clock::now();
    const std::string message = message_of(
        [&] {
          StoreClient({.port = bound_port(silent.get()), .interrupted = [] { return true; }});
        },
        ExitCode::stopped);
    CHECK(message.find("gave no answer") != std::string::npos);
    CHECK(Clock::now() - begin < milliseconds(2000));
  }
  SECTION("an answer that is there is taken, interrupted or not") {
    StoreServer server("127.0.0.1", 0);
    StoreClient client({.port = server.port(), .interrupted = [] { return true; }});
    client.set("k", "v");
    CHECK(client.get("k") == "v");
    CHECK_FALSE(message_of([&] { client.get("other"); }, ExitCode::stopped).empty());
  }
}
