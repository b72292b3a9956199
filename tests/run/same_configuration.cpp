#include "run/same_configuration.h"

#include "base/error.h"
#include "catch.h"

using namespace dltrain;

namespace {

// Returns rank 1's error when rank 0 has `first` and rank 1 has `second`.
std::string difference(const std::string& first, const std::string& second) {
  StoreServer server("127.0.0.1", 0);
  StoreClient store({.port = server.port()});
  check_same_configuration(store, 0, 2, first);
  try {
    check_same_configuration(store, 1, 2, second);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::usage);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("ranks of one configuration agree") {
  CHECK(difference("seed: 1\nname: run\n", "seed: 1\nname: run\n").empty());
}

TEST_CASE("the keys in which a rank differs from rank 0 are named, with both values") {
  CHECK(difference("seed: 1\noptimizer:\n  learning_rate: 0.1\n",
                   "seed: 1\noptimizer:\n  learning_rate: 0.2\n") ==
        "the ranks were started with different configurations: optimizer.learning_rate is 0.1 on "
        "rank 0 and 0.2 on rank 1");
  CHECK(difference("a: 1\nb: 1\nc: 1\nd: 1\n", "a: 2\nb: 2\nd: 2\ne: 1\n") ==
        "the ranks were started with different configurations: a is 1 on rank 0 and 2 on rank 1, b "
        "is 1 on rank 0 and 2 on rank 1, c is 1 on rank 0 and absent on rank 1, and 2 more");
}

TEST_CASE("a configuration that is too long for the store is compared all the same") {
  const std::string text(kStoreMaxValue + 1, '#');
  CHECK(difference(text, text).empty());
  CHECK(difference(text, text + "#") == "the ranks were started with different configurations");
}
