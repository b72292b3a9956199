// Messages of a device to the user, such as a library's refusal of an op or a failed capture.
// The code in which it happens, which may be a plug-in, adds a message; the program writes it to
// its log.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dltrain {

// Used by one thread at a time, like the device.
class Notices {
 public:
  // Only the first of several texts with one topic is reported.
  void add(const std::string& topic, const std::string& text) {
    if (!topics_.insert(topic).second) return;
    if (report_) return report_(text);
    waiting_.push_back(text);
  }
  // Reports the texts so far, and later ones when they are added.
  void report_to(std::function<void(const std::string&)> report) {
    report_ = std::move(report);
    for (const std::string& text : std::exchange(waiting_, {})) report_(text);
  }

 private:
  std::set<std::string> topics_;
  std::vector<std::string> waiting_;
  std::function<void(const std::string&)> report_;
};

}  // namespace dltrain
