// Finds images that cannot be decoded and leaves them out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "config/fields.h"
#include "data/image_source.h"

namespace dltrain {

// Returns the numbers of the images that cannot be decoded, with the reason.
std::vector<std::pair<int64_t, std::string>> find_broken(const ImageSource& source, int threads);

// Returns the valid images and logs a warning for each broken one. Returns `source` if all are
// valid. Throws Error(data) at `location` if all are broken.
std::shared_ptr<const ImageSource> without_broken(std::shared_ptr<const ImageSource> source,
                                                  const std::string& location, int threads);

// Returns the error of an image that cannot be decoded, with its place and the remedy.
inline Error undecodable(const Error& error, std::string location) {
  return {ExitCode::data, fmt::format("{} (data.on_error: skip leaves it out)", error.what()),
          std::move(location)};
}

// The key `on_error`, for kinds of images that may be broken.
inline void describe_on_error(Fields& f, bool& skip_broken) {
  f.choice("on_error", skip_broken,
           {{"stop", false, "the run ends when it reads a broken image"},
            {"skip", true,
             "all images are decoded once at the start, and broken ones are left out with a "
             "warning"}},
           {.doc = "How broken images are handled"});
}

}  // namespace dltrain
