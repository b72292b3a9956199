#include "nn/model.h"

#include "base/error.h"

namespace dltrain {

void ModelConfig::describe(Fields& f) {
  f.list_of("layers", layers, layer_table(),
            {.doc = "Applied one after the other; layer i is named layers.i",
             .required = true,
             .min_size = 1});
  f.text("init_from", init_from,
         {.doc = "Safetensors file with initial weights, matched by parameter name",
          .is_path = true,
          .known_as = {"pretrained", "weights", "checkpoint"}});
  f.text_map("rename", rename,
             {.doc = "Pairs of regular expression and replacement, applied in order to the names "
                     "in the init_from file"});
  f.boolean("strict", strict,
            {.doc = "Refuse an init_from file that lacks a parameter or has another tensor; "
                    "otherwise both are listed"});
}

void ModelConfig::validate(Problems& problems) const {
  if (!init_from && !rename.empty()) {
    problems.add(*this, "rename", "rename needs init_from");
  }
}

EmittedModel emit_model(const ModelRequest& r) {
  EmittedModel out;
  GraphBuilder builder(out.graph);
  LayerContext context(builder, r.training, r.compute, r.ghost_groups);
  for (const InputSpec& input : r.inputs) {
    std::vector<int64_t> dims{r.samples};
    dims.insert(dims.end(), input.sample.shape.begin(), input.sample.shape.end());
    const DType dtype = input.sample.dtype == DType::f32 ? r.compute : input.sample.dtype;
    out.inputs.push_back(
        builder.add_value("input." + input.name, {Shape(dims), dtype}, Role::input));
  }
  out.output = out.inputs.front();
  Problems problems;
  for (size_t i = 0; i < r.model.layers.size() && problems.empty(); ++i) {
    const Layer& layer = *r.model.layers[i];
    builder.set_layer(fmt::format("layers.{}", i));
    try {
      out.output = layer.emit(context, out.output);
    } catch (const Error& error) {
      if (error.code() != ExitCode::usage) throw;
      std::string message = error.what();
      if (const std::string prefix = builder.layer() + ": "; message.starts_with(prefix)) {
        message = message.substr(prefix.size());
      }
      problems.add(layer.place, fmt::format("model.layers[{}] ({}) on {}: {}", i, layer.kind,
                                            to_string(context.shape(out.output)), message));
    }
  }
  problems.throw_if_any();
  builder.set_layer("loss");
  try {
    out.targets = builder.add_value("targets", r.loss.targets(builder.spec(out.output), r.targets),
                                    Role::input);
    out.loss = r.loss.emit(context, out.output, out.targets, r.targets);
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage) throw;
    problems.add(r.loss.place.known() ? r.loss.place : r.model.place, error.what());
  }
  problems.throw_if_any();
  builder.set_layer("");
  out.parameters = context.parameters();
  out.updates = context.updates();
  return out;
}

}  // namespace dltrain
