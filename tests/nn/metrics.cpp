// Metrics from sums: against numbers worked out by hand.
#include "nn/metrics.h"

#include <cmath>

#include "catch.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

const TensorSpec kTen{Shape{4, 10}, DType::f32};

double value(const MetricReport& report, const std::string& label) {
  for (const auto& [name, found] : report.values) {
    if (name == label) return found;
  }
  FAIL("no metric " << label);
  return 0;
}

}  // namespace

TEST_CASE("scores of classes from a confusion matrix") {
  // Rows: targets. Class 2 never occurs and is never answered; class 3 is answered, never wanted.
  const std::vector<double> matrix{5, 1, 0, 0,  //
                                   2, 2, 0, 1,  //
                                   0, 0, 0, 0,  //
                                   0, 0, 0, 0};
  const MetricReport report =
      finish_metrics({"accuracy", "precision", "recall", "f1", "confusion"}, TargetKind::labels,
                     {{"accuracy", {7}}, {"confusion_matrix", matrix}}, 11);
  CHECK(value(report, "accuracy") == Approx(7.0 / 11));
  REQUIRE(report.classes.classes.size() == 4);
  const ClassScores& first = report.classes.classes[0];
  CHECK(first.precision == Approx(5.0 / 7));
  CHECK(first.recall == Approx(5.0 / 6));
  CHECK(first.f1 == Approx(10.0 / 13));
  CHECK(first.support == 6);
  CHECK(report.classes.classes[1].f1 == Approx(4.0 / 8));
  CHECK(report.classes.classes[2].f1 == 0);
  CHECK(value(report, "precision_macro") == Approx((5.0 / 7 + 2.0 / 3 + 0) / 3));
  CHECK(value(report, "recall_macro") == Approx((5.0 / 6 + 2.0 / 5 + 0) / 3));
  CHECK(value(report, "f1_macro") == Approx((10.0 / 13 + 0.5 + 0) / 3));
  CHECK(value(report, "f1_weighted") == Approx((6 * 10.0 / 13 + 5 * 0.5) / 11));
  CHECK(report.classes.confusion == matrix);
  std::vector<std::string> labels;
  for (const auto& [label, found] : report.values) labels.push_back(label);
  CHECK(labels == metric_labels({"accuracy", "precision", "recall", "f1", "confusion"}));
}

TEST_CASE("perplexity is the exponential of the mean cross-entropy") {
  const MetricReport report = finish_metrics({"perplexity"}, TargetKind::labels,
                                             {{"softmax_cross_entropy", {8 * std::log(5.0)}}}, 8);
  CHECK(value(report, "perplexity") == Approx(5));
  CHECK(metric_labels({"perplexity"}) == std::vector<std::string>{"perplexity"});
  CHECK(metric_name_problem("perplexity").empty());
  CHECK(metric_problem("perplexity", TargetKind::labels, kTen).empty());
  CHECK_THAT(metric_problem("perplexity", TargetKind::distributions, kTen),
             Contains("needs one label a target"));
}

TEST_CASE("scores of binary outputs from their counts") {
  const MetricReport report =
      finish_metrics({"f1"}, TargetKind::binary,
                     {{"accuracy", {9}}, {"binary_counts", {3, 1, 2, 4, 0, 0, 0, 10}}}, 20);
  CHECK(report.classes.classes[0].f1 == Approx(6.0 / 9));
  CHECK(value(report, "f1_macro") == Approx(3.0 / 9));  // the second output never occurs: 0
  CHECK(report.classes.confusion.empty());
  CHECK(report.classes.of_outputs);
  // One output: true and false positives, false and true negatives.
  const MetricReport one = finish_metrics({"f1", "confusion"}, TargetKind::binary,
                                          {{"binary_counts", {3, 1, 2, 4}}}, 10);
  CHECK(one.classes.confusion == std::vector<double>{4, 1, 2, 3});
  CHECK_FALSE(one.classes.of_outputs);
  CHECK(one.classes.classes[0].f1 == Approx(8.0 / 11));
  CHECK(one.classes.classes[1].f1 == Approx(6.0 / 9));
  CHECK(value(one, "f1_macro") == Approx((8.0 / 11 + 6.0 / 9) / 2));
  CHECK(value(one, "f1_weighted") == Approx((8.0 / 11 + 6.0 / 9) / 2));  // five of each
}

TEST_CASE("errors of numbers from their sums") {
  // Output 0: targets 1, 2, 3 with differences 1, -1, 0. Output 1: targets 5, 5, 5.
  const std::vector<double> sums{3, 2, 2, 6, 14, 3, 3, 9, 15, 75};
  const auto report =
      finish_metrics({"mae", "mse", "rmse"}, TargetKind::numbers, {{"regression_sums", sums}}, 6);
  CHECK(value(report, "mae") == Approx(5.0 / 6));
  CHECK(value(report, "mse") == Approx(11.0 / 6));
  CHECK(value(report, "rmse") == Approx((std::sqrt(2.0 / 3) + std::sqrt(3.0)) / 2));
  const auto of = [](std::vector<double> s) {
    return value(
        finish_metrics({"r2"}, TargetKind::numbers, {{"regression_sums", std::move(s)}}, 3), "r2");
  };
  CHECK(of({3, 2, 2, 6, 14}) == Approx(0));  // 1 − 2/2
  CHECK(of({3, 0, 0, 6, 14}) == 1);
  CHECK(of(sums) == Approx(0));  // and 0 of targets that do not vary
  CHECK(of({3, 0.3, 0.03, 0.3, std::nextafter(0.03, 1)}) == 0);  // whatever rounding says
  CHECK(of({0, 0, 0, 0, 0, 3, 0, 0, 6, 14}) == 1);  // an output without targets does not count
  CHECK(of({1, 1, 1, 2, 4, 3, 0, 0, 6, 14}) == 1);  // nor one with a single target
  CHECK(std::isnan(of({1, 0, 0, 2, 4})));
}

TEST_CASE("metrics that do not fit are refused, and what suits is chosen") {
  for (const char* name : {"accuracy", "top_5", "precision", "recall", "f1", "confusion", "mae",
                           "mse", "rmse", "r2"}) {
    CHECK(metric_name_problem(name) == "");
  }
  for (const char* name : {"top_", "top_0", "top_x", "F1", "top_5x", ""}) {
    CHECK_THAT(metric_name_problem(name), Contains("unknown metric"));
  }
  CHECK(metric_name_problem("f1_macro") == "unknown metric 'f1_macro'; did you mean 'f1'?");
  CHECK_THAT(metric_problem("mae", TargetKind::labels, kTen), Contains("targets are classes"));
  CHECK_THAT(metric_problem("accuracy", TargetKind::numbers, kTen),
             Contains("targets are numbers"));
  CHECK_THAT(metric_problem("top_11", TargetKind::labels, kTen), Contains("of 10 classes"));
  CHECK_THAT(metric_problem("top_2", TargetKind::binary, kTen), Contains("one label"));
  CHECK_THAT(metric_problem("f1", TargetKind::distributions, kTen), Contains("needs labels"));
  CHECK_THAT(metric_problem("f1", TargetKind::labels, {Shape{4, 50000}, DType::f32}),
             Contains("50000 classes"));
  using Names = std::vector<std::string>;
  CHECK(default_metrics(TargetKind::labels, kTen) == Names{"accuracy", "f1"});
  CHECK(default_metrics(TargetKind::labels, {Shape{4, 50000}, DType::f32}) ==
        Names{"accuracy", "top_5"});
  CHECK(default_metrics(TargetKind::labels, {Shape{4, 8, 65}, DType::f32}, true) ==
        Names{"accuracy", "perplexity"});
  CHECK(default_metrics(TargetKind::binary, kTen) == Names{"accuracy", "f1"});
  CHECK(default_metrics(TargetKind::distributions, kTen) == Names{"accuracy"});
  CHECK(default_metrics(TargetKind::numbers, kTen) == Names{"mae", "rmse"});
}
