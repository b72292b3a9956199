// The keys of `type: csv`.
#include "data/config.h"
#include "data/csv.h"
#include "data/scaling_config.h"

namespace dltrain {
namespace {

struct CsvConfig final : DatasetConfig {
  CsvOptions options;
  std::optional<bool> regression;
  std::optional<std::vector<int64_t>> rows;
  ScalingConfig scaling;

  void describe(Fields& f) override {
    f.text("path", options.path,
           {.doc = "The file, plain or gzip",
            .required = true,
            .is_path = true,
            .known_as = {"file", "filename"}});
    f.text("delimiter", options.hints.delimiter,
           {.doc = "The character between columns, a blank for any number of blanks; if absent, "
                   "detected from the first lines: comma, semicolon, tab, bar or blanks",
            .known_as = {"sep", "separator"}});
    f.text("decimal", options.hints.decimal,
           {.doc = "The decimal mark, \".\" or \",\"; if absent, a comma if the first lines have "
                   "only commas and these do not separate columns"});
    f.boolean("header", options.hints.header,
              {.doc = "The first line has names; if absent, true if it has texts above numbers, or "
                      "texts that no other line repeats"});
    f.text("target", options.target,
           {.doc = "The column to predict: last, first, a number from 0, or a name of the header; "
                   "none: all columns are inputs",
            .known_as = {"label", "target_column", "label_column"}});
    f.choice("task", regression,
             {{"classification", false,
               "targets are classes: integers from 0, otherwise each value is the name of a class"},
              {"regression", true, "targets are numbers"}},
             {.doc = "Type of the targets; if absent, determined by the loss"});
    f.integer("classes", options.classes,
              {.doc = "Labels are integers below this; if absent, determined by the data",
               .min = 1,
               .known_as = {"num_classes"}});
    f.texts("columns", options.columns,
            {.doc = "The columns that are inputs; if absent, all except the target and `ignore`",
             .scalar_ok = true,
             .known_as = {"features", "usecols", "inputs"}});
    f.texts(
        "ignore", options.ignore,
        {.doc = "Columns that are not inputs", .scalar_ok = true, .known_as = {"drop", "exclude"}});
    f.texts("categories", options.categories,
            {.doc = "Columns that are categories even if their cells are numbers or have very many "
                    "different values",
             .scalar_ok = true,
             .known_as = {"categorical", "categorical_columns"}});
    f.choice("encoding", options.embedded,
             {{"one_hot", false, "an input for each category, 1 or 0"},
              {"ids", true,
               "an id for each, in the integer input `categories`, for an embedding layer; 0 for "
               "unknown categories"}},
             {.doc = "Encoding of categories"});
    f.choice("empty", options.empty,
             {{"error", EmptyCells::error, "an error"},
              {"mean", EmptyCells::mean,
               "the mean of the column in the training split; for texts a separate category"},
              {"category", EmptyCells::category,
               "the same with a further input that is 1 where a number is missing"}},
             {.doc = "Treatment of empty cells, which may also be NA, nan, null, None or ?",
              .known_as = {"missing", "na", "fillna", "impute"}});
    f.integers("shape", options.shape,
               {.doc = "Shape of a sample's inputs; if absent, [columns]",
                .min = 1,
                .min_size = 1,
                .max_size = Shape::kMaxRank - 1});
    scaling.describe(f);
    f.integers("rows", rows,
               {.doc = "Lines of data [first, last) to use, counted from 0 without header and "
                       "blank lines; if absent, all",
                .min = 0,
                .min_size = 2,
                .max_size = 2});
    DatasetConfig::describe(f);
  }

  void validate(Diagnostics& diagnostics) const override {
    DatasetConfig::validate(diagnostics);
    const auto& [delimiter, decimal, header] = options.hints;
    if (delimiter && delimiter->size() != 1) {
      diagnostics.add(*this, "delimiter", "delimiter must be one character");
    }
    if (decimal && *decimal != "." && *decimal != ",") {
      diagnostics.add(*this, "decimal", "decimal is \".\" or \",\"");
    }
    if (rows && (*rows)[1] <= (*rows)[0]) {
      diagnostics.add(*this, "rows",
                      fmt::format("rows [{}, {}) are empty", (*rows)[0], (*rows)[1]));
    }
    if (regression.value_or(false) && options.classes) {
      diagnostics.add(*this, "classes", "a regression has no classes");
    }
    scaling.validate(*this, options.shape ? options.shape->back() : std::optional<int64_t>(),
                     diagnostics);
  }

  void expect_numbers(bool numbers) override {
    if (!regression) regression = numbers && !options.classes;
  }
  InputFit fit() const override {
    InputFit fit = scaling.fit();
    fit.fill = options.empty != EmptyCells::error;
    return fit;
  }

  std::shared_ptr<const Dataset> open(const OpenOptions& how) const override {
    CsvOptions resolved = options;
    resolved.regression = regression.value_or(false);
    resolved.scaling = scaling.options();
    if (rows) resolved.rows = {(*rows)[0], (*rows)[1]};
    return transform_samples(load_csv(resolved, how), changes());
  }
  std::shared_ptr<const Dataset> open_as_eval(
      const std::function<std::shared_ptr<const Dataset>()>& train,
      const OpenOptions& how) const override {
    OpenOptions as_train = how;
    if (!how.trained || how.trained->columns.empty()) as_train.trained = train()->schema();
    return open(as_train);
  }
};

}  // namespace

KindRow<DatasetConfig> csv_row() {
  return {"csv", "A table in a CSV file, one sample per line, plain or gzip",
          make_kind_of<CsvConfig>};
}

}  // namespace dltrain
