#include "run/teachers.h"

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/base_weights.h"
#include "checkpoint/run_folder.h"
#include "config/load.h"
#include "config/paths.h"
#include "run/session_data.h"

namespace dltrain {
namespace {

// Keys of the agreement do not contain paths: rank 0 may have opened other sessions for a choice,
// which have resolved its paths already.
std::shared_ptr<const TeacherModel> open_teacher(const std::string& path, size_t number,
                                                 const SessionOptions& options) {
  auto teacher = std::make_shared<TeacherModel>();
  // A run may write a newer checkpoint before another rank looks for it.
  const auto find = [&] {
    ResumeChoice found = find_checkpoint(path);
    teacher->kept = std::move(found.kept);
    return std::filesystem::absolute(found.checkpoint).lexically_normal().string();
  };
  teacher->checkpoint = options.agree(fmt::format("teacher {}", number), find);
  teacher->fingerprint = fingerprint_of_weights(teacher->checkpoint);
  teacher->experiment =
      load_config<Experiment>({.files = {teacher->checkpoint / "config.yaml"}, .overrides = {}});
  if (has_base_elsewhere(teacher->experiment.model)) {
    fail(ExitCode::usage,
         "the teacher {} has adapters alone (model.lora.save); a teacher needs save: all and base: "
         "f32 or bf16",
         teacher->checkpoint.string());
  }
  return teacher;
}

// Throws Error(usage) if a teacher knows other columns, classes or tokens than those of the data;
// warns of another normalization.
void check_teacher_data(const Session& session, const std::filesystem::path& checkpoint) {
  const std::filesystem::path run = run_of(checkpoint);
  if (const auto tokenizer = session.data.train->tokenizer(); tokenizer && holds_tokenizer(run)) {
    const std::string tokens = tokenizer_difference(*load_tokenizer(run), *tokenizer);
    if (!tokens.empty()) {
      fail(ExitCode::usage, "the teacher {} was trained with another tokenizer: {}",
           checkpoint.string(), tokens);
    }
  }
  const DataSchema saved = saved_schema(checkpoint);
  const std::string difference = data_difference(session, saved);
  if (difference.empty()) return;
  if (!only_statistics_differ(saved, session.data_schema())) {
    fail(ExitCode::usage, "the teacher {} was trained with other data: {}", checkpoint.string(),
         difference);
  }
  if (!session.options.ranks.is_leader()) return;
  log_warning("the teacher {} was trained with inputs that are normalized otherwise: {}",
              checkpoint.string(), difference);
}

}  // namespace

void open_teachers(Session& session) {
  Loss& loss = *session.experiment->loss;
  const auto paths = loss.teachers();
  if (paths.empty() || !session.options.teacher) return;
  refuse_missing_paths(ObjectRef::of(loss), ExitCode::storage);
  std::vector<std::string> checkpoints;
  for (const std::string& path : paths) {
    session.teachers.push_back(open_teacher(path, session.teachers.size(), session.options));
    check_teacher_data(session, session.teachers.back()->checkpoint);
    checkpoints.push_back(session.teachers.back()->checkpoint.string());
  }
  loss.set_teachers(checkpoints);
}

}  // namespace dltrain
