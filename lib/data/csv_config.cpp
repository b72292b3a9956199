// The keys of `type: csv`.
#include "data/csv.h"
#include "data/registry.h"
#include "data/scaling_config.h"

namespace dltrain {
namespace {

struct CsvConfig final : DatasetConfig {
  CsvOptions options;
  std::optional<std::vector<int64_t>> rows;
  ScalingConfig scaling;

  void describe(Fields& f) override {
    f.text("path", options.path,
           {.doc = "The file, plain or gzip",
            .required = true,
            .is_path = true,
            .known_as = {"file", "filename"}});
    f.text("delimiter", options.delimiter,
           {.doc = "The character between columns", .known_as = {"sep", "separator"}});
    f.boolean("header", options.header, {.doc = "The first line has names"});
    f.text(
        "target", options.target,
        {.doc =
             "The column to predict: last, first, a number from 0, or a name of the header; none: "
             "all columns are inputs, for predict",
         .known_as = {"label", "target_column", "label_column"}});
    f.choice("task", options.regression,
             {{"classification", false, "targets are labels, whole numbers from 0"},
              {"regression", true, "targets are numbers"}},
             {.doc = "What the targets are"});
    f.integer("classes", options.classes,
              {.doc = "Labels must be below this", .min = 1, .known_as = {"num_classes"}});
    f.integers("shape", options.shape,
               {.doc = "Shape of a sample's inputs; absent: [columns]",
                .min = 1,
                .min_size = 1,
                .max_size = Shape::kMaxRank - 1});
    scaling.describe(f);
    f.integers("rows", rows,
               {.doc = "Lines of data [first, last) to use, counted from 0 without header and "
                       "blank lines; absent: all",
                .min = 0,
                .min_size = 2,
                .max_size = 2});
    DatasetConfig::describe(f);
  }

  void validate(Problems& problems) const override {
    DatasetConfig::validate(problems);
    if (options.delimiter.size() != 1) {
      problems.add(*this, "delimiter", "delimiter must be one character");
    }
    if (rows && (*rows)[1] <= (*rows)[0]) {
      problems.add(*this, "rows", fmt::format("rows [{}, {}) are none", (*rows)[0], (*rows)[1]));
    }
    if (options.regression && options.classes) {
      problems.add(*this, "classes", "a regression has no classes");
    }
    scaling.validate(*this, options.shape ? options.shape->back() : std::optional<int64_t>(),
                     problems);
  }

  std::shared_ptr<const Dataset> open() const override {
    CsvOptions resolved = options;
    resolved.scaling = scaling.options();
    if (rows) resolved.rows = {(*rows)[0], (*rows)[1]};
    return change_samples(load_csv(resolved), changes());
  }
};

}  // namespace

KindRow<DatasetConfig> csv_row() {
  return {"csv", "A file of numbers, one sample a line, plain or gzip", make_kind_of<CsvConfig>};
}

}  // namespace dltrain
