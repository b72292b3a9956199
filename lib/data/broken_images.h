// Images that cannot be decoded: found before training, and left out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/fields.h"
#include "data/image_source.h"

namespace dltrain {

// Numbers of the images that cannot be decoded, with the reason; looked for by `threads`.
std::vector<std::pair<int64_t, std::string>> find_broken(const ImageSource& source, int threads);

// The images without those, each of which is named in a warning; `source` itself where all are
// sound. Throws Error(data) at `place` where all are broken.
std::shared_ptr<const ImageSource> without_broken(std::shared_ptr<const ImageSource> source,
                                                  const std::string& place, int threads);

// The key `on_error` of kinds of images that may be broken.
inline void describe_on_error(Fields& f, bool& skip_broken) {
  f.choice("on_error", skip_broken,
           {{"stop", false, "an image that cannot be read ends the run when its turn comes"},
            {"skip", true,
             "all images are decoded once at the start, and broken ones are left out, each named "
             "in a warning"}},
           {.doc = "What happens with broken images"});
}

}  // namespace dltrain
