#include "launch/options.h"

#include "base/error.h"
#include "catch.h"
#include "launch/cpus.h"

using namespace dltrain;

TEST_CASE("numbers of nodes are one number or a range") {
  CHECK(parse_nodes("3") == std::pair(3, 3));
  CHECK(parse_nodes("1:4") == std::pair(1, 4));
  const std::string text = GENERATE(as<std::string>(), "", "0", "4:1", "1:2:3", "a", "1:", "-1");
  INFO(text);
  CHECK_THROWS_AS(parse_nodes(text), Error);
}

TEST_CASE("ranks a node are a number, the cores or the GPUs") {
  const auto none = [] { return 0; };
  CHECK(parse_processes("3", none) == 3);
  CHECK(parse_processes("cpu", none) == find_usable_cpus().threads());
  CHECK(parse_processes("auto", none) == find_usable_cpus().threads());
  CHECK(parse_processes("auto", [] { return 5; }) == 5);
  CHECK(parse_processes("gpu", [] { return 8; }) == 8);
  CHECK_THROWS_AS(parse_processes("gpu", none), Error);
  CHECK_THROWS_AS(parse_processes("0", none), Error);
  CHECK_THROWS_AS(parse_processes("many", none), Error);
}

TEST_CASE("an endpoint is a host with or without a port") {
  CHECK(parse_endpoint("n01:1234", 5) == std::pair(std::string("n01"), 1234));
  CHECK(parse_endpoint("n01", 5) == std::pair(std::string("n01"), 5));
  CHECK(parse_endpoint("[fe80::1]:80", 5) == std::pair(std::string("fe80::1"), 80));
  CHECK(parse_endpoint("[::1]", 5) == std::pair(std::string("::1"), 5));
  const std::string text =
      GENERATE(as<std::string>(), "", ":80", "n01:", "n01:x", "n01:70000", "[::1", "[::1]80");
  INFO(text);
  CHECK_THROWS_AS(parse_endpoint(text, 5), Error);
}

TEST_CASE("the rendezvous's times are seconds") {
  LaunchOptions options;
  parse_rendezvous_conf("join_timeout=5,last_call_timeout=2,read_timeout=7", options);
  CHECK(options.join_timeout == std::chrono::seconds(5));
  CHECK(options.last_call == std::chrono::seconds(2));
  CHECK(options.read_timeout == std::chrono::seconds(7));
  const std::string text = GENERATE(as<std::string>(), "", "join_timeout", "join_timeout=x",
                                    "rank=4", "join_timeout=0", "join_timeout=1=2", "read_timeout");
  INFO(text);
  CHECK_THROWS_AS(parse_rendezvous_conf(text, options), Error);
}
