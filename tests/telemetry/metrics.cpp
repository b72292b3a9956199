#include "telemetry/metrics.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/faulty_disk.h"
#include "catch.h"
#include "temporary_folder.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

JsonObject line(int64_t step) {
  JsonObject object;
  object.add("step", step).add_loss("loss", 1.0 / static_cast<double>(step));
  return object;
}

std::string lines(int64_t first, int64_t last) {
  std::string text;
  for (int64_t step = first; step <= last; ++step) text += line(step).text() + "\n";
  return text;
}

}  // namespace

TEST_CASE("a JSON object keeps order, escapes text and has no NaN") {
  JsonObject inner, object;
  inner.add("a", true);
  object.add("text", "quote \" and \n and \xff").add("n", int64_t{-3}).add("x", 0.1);
  object.add_loss("loss", 2.30258512496948).add_rounded("rate", 12345.678, 3);
  object.add("nan", std::nan("")).add_loss("inf", INFINITY).add("inner", inner);
  object.add("list", std::vector<JsonObject>{inner, inner});
  CHECK_THAT(object.text(), Contains(R"("n": -3, "x": 0.1, "loss": 2.30258512, "rate": 1.23e+04)"));
  const auto json = nlohmann::json::parse(object.text());
  CHECK(json["nan"].is_null());
  CHECK(json["inf"].is_null());
  CHECK(json["list"][1]["a"] == true);
  CHECK(json["text"].get<std::string>().starts_with("quote \" and \n and "));
}

TEST_CASE("nine digits bring every float back") {
  for (float value : {1.1f, 0.1f, 3.4028235e38f, 1.17549435e-38f, 2.3025851f, 16777217.0f}) {
    JsonObject object;
    object.add_loss("x", value);
    CHECK(static_cast<float>(nlohmann::json::parse(object.text())["x"].get<double>()) == value);
  }
}

TEST_CASE("metrics are complete after every line") {
  TemporaryFolder folder;
  folder.write("m.jsonl", "of another run\n");
  MetricsWriter metrics(folder / "m.jsonl", {});
  CHECK(slurp(folder / "m.jsonl").empty());
  metrics.write(line(1));
  CHECK(slurp(folder / "m.jsonl") == lines(1, 1));
  metrics.write(line(2));
  CHECK(slurp(folder / "m.jsonl") == lines(1, 2));
}

TEST_CASE("resuming removes later steps and what a crash cut, at any byte") {
  TemporaryFolder folder;
  const std::string whole = lines(1, 6);
  for (size_t size = 0; size <= whole.size(); ++size) {
    folder.write("m.jsonl", whole.substr(0, size));
    { MetricsWriter(folder / "m.jsonl", 4).write(line(5)); }
    const std::string text = slurp(folder / "m.jsonl");
    const auto kept = std::min<int64_t>(
        4, std::count(whole.begin(), whole.begin() + static_cast<int64_t>(size), '\n'));
    REQUIRE(text == lines(1, kept) + line(5).text() + "\n");
  }
  CHECK(metrics_to_keep("{\"note\": 1}\n{\"step\": 9}\n", 8) == 12);
  CHECK(metrics_to_keep("{\"step\": 8}\n{\"step\": 8, \"eval_samples\": 2}\n", 8, true) == 12);
  CHECK(metrics_to_keep("not JSON\n", 8) == 0);
  CHECK(metrics_to_keep("{\"step\": \"x\"}\n", 8) == 0);
  MetricsWriter fresh(folder / "new.jsonl", 4);
  CHECK(slurp(folder / "new.jsonl").empty());
}

TEST_CASE("the lines of earlier attempts say how many there were, and when") {
  TemporaryFolder folder;
  const auto read = [&](const std::string& text) {
    folder.write("m.jsonl", text);
    return earlier_attempts(folder / "m.jsonl");
  };
  CHECK(earlier_attempts(folder / "none.jsonl").attempts == 0);
  for (const char* text : {"", "\n", "{\"step\": 1", "\n\n"}) CHECK(read(text).last == 0);
  CHECK(read("").attempts == 0);
  CHECK(read(lines(1, 3)).attempts == 1);  // of a version without attempts
  const auto found = read(R"({"step": 1, "time": 5, "attempt": 1}
{"step": 2, "time": 7.5, "attempt": 3}
{"step": 3, "ti)");
  CHECK(found.attempts == 3);
  CHECK(found.first == 5);
  CHECK(found.last == 7.5);
}

TEST_CASE("a full disk is a storage error, and the next start repairs the file") {
  TemporaryFolder folder;
  {
    MetricsWriter metrics(folder / "m.jsonl", {});
    metrics.write(line(1));
    FaultyDisk disk(FaultyDisk::Fault::kill, 0);
    ReplaceSystemCalls guard(disk);
    CHECK_THROWS_WITH(metrics.write(line(2)), Contains("No space left on device"));
  }
  CHECK(slurp(folder / "m.jsonl") != lines(1, 1));
  MetricsWriter(folder / "m.jsonl", 1).write(line(2));
  CHECK(slurp(folder / "m.jsonl") == lines(1, 2));
}

TEST_CASE("a summary is one JSON object, whole or not at all") {
  TemporaryFolder folder;
  write_summary(folder / "s.json", line(4));
  CHECK(slurp(folder / "s.json") == "{\"step\": 4, \"loss\": 0.25}\n");
  CHECK_THROWS_AS(write_summary(folder / "missing/s.json", line(4)), Error);
}
