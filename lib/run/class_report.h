// The per-class table of an evaluation as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nn/metrics.h"

namespace dltrain {

// Returns lines of class, precision, recall, F1 and support, then the means. `names`: of the
// classes; classes without a name have their number. The confusion matrix follows if it was asked
// for and has at most 20 classes.
std::string print_class_report(const ClassReport& report, const std::vector<std::string>& names);

// {"classes": [{"class", "precision", "recall", "f1", "support"}], "macro": {…}, "weighted": {…},
// "confusion": [[…]] where it was asked for}
nlohmann::ordered_json class_report_json(const ClassReport& report,
                                         const std::vector<std::string>& names);

}  // namespace dltrain
