"""Optimizers, groups, clipping and averages: against PyTorch's runs recorded by
scripts/record_golden_optimizers.py, and resumed bit by bit."""
import json

import support
from support import SOURCES, USAGE, safetensors, steps

GOLDEN = SOURCES / "tests" / "golden" / "optimizers" / "losses.json"
# Relative. PyTorch's own runs in f32 and f64 are at most 1.3e-6 apart (adafactor; the others 1e-6 and less);
# the rest is room for another order of the sums.
TOLERANCE = 1e-5

CONFIGURATION = """
name: golden
model:
  init_from: tests/golden/mlp/weights.safetensors
  layers:
    - {{type: linear, out_features: 32}}
    - {{type: gelu, approximate: tanh}}
    - {{type: linear, out_features: 32}}
    - {{type: gelu, approximate: tanh}}
    - {{type: linear, out_features: 10}}
loss: {{type: cross_entropy}}
data: {{type: tensors, path: tests/golden/mlp/batches.safetensors, inputs: x, targets: y, train: {{shuffle: false}}, eval: {{}}}}
optimizer: {optimizer}
training: {{global_batch_size: {batch}, max_steps: {steps}, {training}}}
evaluation: {{samples: {batch}}}
logging: {{logging_steps: 1}}
"""

# Their parameters would have the names of moments, gradients and copies if these were joined by a dot.
NAMES = """
name: names
model: {layers: [{linear: 8, name: "."}, {relu: {}}, {linear: 8, name: momentum}, {linear: 8, name: gradient}, {linear: 10, name: low_precision}]}
loss: {type: cross_entropy}
data: {type: tensors, path: tests/golden/mlp/batches.safetensors, inputs: x, targets: y}
optimizer: {type: sgd, learning_rate: 0.01, momentum: 0.9}
training: {global_batch_size: 16, max_steps: 8}
"""


def recorded():
    golden = json.loads(GOLDEN.read_text())
    return golden, golden["cases"]


class Optimizers(support.DltrainTest):
    def configuration(self, name):
        golden, cases = recorded()
        return self.write(f"{name}.yaml", CONFIGURATION.format(optimizer=cases[name]["optimizer"], training=cases[name]["training"],
                                                               batch=golden["batch"], steps=golden["steps"]))

    def state_of(self, run):
        """Every tensor of the last checkpoint, by file."""
        folder = run / "checkpoints" / "latest"
        return {path.name: safetensors(path) for path in sorted(folder.glob("*.safetensors"))}

    def near(self, found, expected, what):
        self.assertLessEqual(abs(found - expected), TOLERANCE * abs(expected), what)

    def test_every_optimizer_has_the_trajectory_of_torch_or_of_its_paper(self):
        golden, cases = recorded()
        self.assertGreaterEqual(len(cases), 14)
        for name, case in cases.items():
            run = self.folder / name
            self.run_dltrain(self.configuration(name), "-q", "--output-dir", run)
            lines = steps(run)
            self.assertEqual(len(lines), golden["steps"])
            worst = 0
            for i, line in enumerate(lines):
                for series in ("loss", "grad_norm"):
                    self.near(line[series], case["f64"][series][i], f"{name} {series}, step {i + 1}")
                worst = max(worst, abs(line["loss"] / case["f64"]["loss"][i] - 1))
            (evaluation,) = [line["eval_loss"] for line in support.metrics(run) if "eval_loss" in line]
            self.near(evaluation, case["f64"]["eval_loss"], f"{name}, evaluation")
            print(f"{name}: losses within {worst:.1e}")

    def test_every_optimizer_resumes_bit_identically(self):
        for name in recorded()[1]:
            configuration = self.configuration(name)
            whole, parts = self.folder / f"{name}-whole", self.folder / f"{name}-parts"
            self.run_dltrain(configuration, "-q", "--output-dir", whole)
            for limit in (1, 4, 11, 20):
                self.run_dltrain(configuration, "-q", "--output-dir", parts, "--max-steps", limit, "--resume", "auto")
            self.assertEqual(self.state_of(whole), self.state_of(parts), name)
            self.assertEqual([line["loss"] for line in steps(whole)], [line["loss"] for line in steps(parts)], name)

    def test_moments_in_8_bits_train_where_many_inputs_are_0(self):
        """With bitsandbytes' codes, which round small second moments to 0, this training ends in NaN."""
        config = self.write("digits.yaml", "model: {layers: [{linear: 512}, relu, {linear: 512}, relu, {linear: 10}]}\n"
                            f"data: {{train: {{type: csv, path: {support.SOURCES / 'data' / 'digits.csv.gz'}}}, eval_fraction: 0.2}}\n"
                            "optimizer: {type: adamw, learning_rate: 1.0e-3, moments: 8bit}\ntraining: {global_batch_size: 64, num_epochs: 10}\n")
        for seed in range(3):
            run = self.folder / str(seed)
            self.run_dltrain(config, "-q", "--output-dir", run, "-s", f"seed={seed}")
            (accuracy,) = [line["eval_accuracy"] for line in support.metrics(run) if "eval_accuracy" in line]
            self.assertGreater(accuracy, 0.95)

    def test_updates_in_the_backward_with_clipping_resume_bit_identically(self):
        config = self.write("in_backward.yaml", CONFIGURATION.format(
            optimizer="{type: adamw, learning_rate: 0.01}", batch=recorded()[0]["batch"], steps=20,
            training="max_grad_norm: 0.5, clip_norm: previous, optimizer_in_backward: true"))
        whole, parts = self.folder / "whole", self.folder / "parts"
        self.run_dltrain(config, "-q", "--output-dir", whole)
        for limit in (1, 4, 20):
            self.run_dltrain(config, "-q", "--output-dir", parts, "--max-steps", limit, "--resume", "auto")
        self.assertEqual(self.state_of(whole), self.state_of(parts))
        self.assertIn("clip_norm.previous", self.state_of(whole)["optimizer.safetensors"])
        # Clipping changes the run from its second step on.
        free = self.folder / "free"
        self.run_dltrain(config, "-q", "--output-dir", free, "-s", "training.max_grad_norm=1e9")
        losses = [[line["loss"] for line in steps(run)] for run in (whole, free)]
        self.assertEqual(losses[0][:2], losses[1][:2])
        self.assertNotEqual(losses[0][2], losses[1][2])

    def test_other_commands_take_runs_with_gradient_noise_and_with_updates_in_the_backward(self):
        noise = self.write("noise.yaml", support.SMALL.replace("logging_steps: 1", "logging_steps: 1, gradient_noise: true"))
        run = self.folder / "noise"
        self.run_dltrain("train", noise, "-q", "--nproc-per-node", 2, "--output-dir", run, "-s", "training.max_steps=5")
        self.assertIn("gradient_noise_scale", steps(run)[-1])
        self.run_dltrain("eval", run)
        self.assertIn("PASS  gradient check", self.run_dltrain("check", noise, code=None).out)
        backward = self.write("backward.yaml", support.SMALL.replace("max_grad_norm: 1.0", "optimizer_in_backward: true"))
        self.assertIn("PASS  gradient check", self.run_dltrain("check", backward, code=None).out)
        self.run_dltrain("train", backward, "-q", "--output-dir", self.folder / "backward", "-s", "training.max_steps=5")
        self.run_dltrain("eval", self.folder / "backward")

    def test_a_frozen_layer_keeps_its_weights_and_has_no_state(self):
        run = self.folder / "run"
        self.run_dltrain(self.configuration("groups"), "-q", "--output-dir", run)
        before, state = safetensors(SOURCES / "tests" / "golden" / "mlp" / "weights.safetensors"), self.state_of(run)
        model, moments = state["model.safetensors"], state["optimizer.safetensors"]
        for name, tensor in before.items():
            self.assertEqual(model[name] == tensor, name.startswith("layers.2."), name)
        self.assertEqual([name for name in moments if ".layers.2." in name], [])
        plan = self.run_dltrain("plan", self.configuration("groups")).out
        self.assertIn("frozen: 2 tensors, layers.2.weight to layers.2.bias", plan)

    def test_layers_may_have_the_names_of_state(self):
        """Layers called momentum, gradient, … train, save and resume as others do, with any kind of sharding."""
        configuration = self.write("names.yaml", NAMES)
        for ranks, options in ((1, ()), (2, ("-s", "parallelism.zero_stage=3"))):
            whole, parts = self.folder / f"whole{ranks}", self.folder / f"parts{ranks}"
            launch = ("--nproc-per-node", ranks, "-q", "-s", "precision.compute=bf16", *options)
            self.run_dltrain(configuration, "--output-dir", whole, *launch)
            for limit in (3, 8):
                self.run_dltrain(configuration, "--output-dir", parts, "--max-steps", limit, "--resume", "auto", *launch)
            self.assertEqual(self.state_of(whole), self.state_of(parts), options)

    def test_moments_in_8_bits_continue_in_other_layouts_and_do_not_become_others(self):
        configuration = self.configuration("adamw-8bit")
        run = self.folder / "run"
        self.run_dltrain(configuration, "-q", "--output-dir", run, "--nproc-per-node", 2, "--max-steps", 10, "-s", "parallelism.zero_stage=3")
        self.run_dltrain(configuration, "-q", "--output-dir", run, "--resume", "auto", "--allow-changes")
        golden, cases = recorded()
        for line, expected in zip(steps(run), cases["adamw-8bit"]["f64"]["loss"], strict=True):
            self.near(line["loss"], expected, f"step {line['step']}")
        for name, tensor in self.state_of(run)["optimizer.safetensors"].items():
            if name.endswith("_8bit.layers.2.weight"):
                self.assertEqual(len(tensor[-1]), 32 * 32, name)
        for first, second, change in (("8bit", "f32", '"8bit" -> f32'), ("f32", "8bit", 'f32 -> "8bit"')):
            other = self.folder / f"from-{first}"
            self.run_dltrain(configuration, "-q", "--output-dir", other, "--max-steps", 10, "-s", f"optimizer.moments={first}")
            self.refused(USAGE, configuration, "--output-dir", other, "--resume", "auto", "--allow-changes", "-s",
                         f"optimizer.moments={second}", says=("the state of an optimizer with other settings", f"optimizer.moments: {change}"))

    def test_patterns_that_fit_nothing_are_told_with_their_place(self):
        configuration = self.configuration("groups")
        result = self.refused(USAGE, configuration, "--output-dir", self.folder / "run", "-s", "training.freeze=layers.7.*",
                              "-s", "optimizer.groups=[{match: [head.*, \"*.bias\"], lr_scale: 2}]",
                              says=("'layers.7.*' matches no parameter; they are layers.0.weight … layers.4.bias",
                                    "'head.*' matches no parameter"))
        self.assertNotIn("'*.bias'", result.err)
        self.refused(USAGE, configuration, "--output-dir", self.folder / "run", "-s", "training.freeze=\"*\"",
                     says="every parameter is frozen")

    def test_averages_are_what_is_evaluated_and_are_kept_beside_the_weights(self):
        run = self.folder / "run"
        self.run_dltrain(self.configuration("ema"), "-q", "--output-dir", run)
        state = self.state_of(run)
        self.assertEqual(list(state["ema.safetensors"]), list(state["model.safetensors"]))
        self.assertNotEqual(state["ema.safetensors"], state["model.safetensors"])
        (during,) = [line["eval_loss"] for line in support.metrics(run) if "eval_loss" in line]
        result = self.folder / "eval.json"
        self.run_dltrain("eval", "--checkpoint", run, "--result", result)
        self.assertAlmostEqual(json.loads(result.read_text())["eval_loss"], during, delta=1e-8)  # metrics have 9 digits
        # The file of averages can be loaded as a model of its own.
        alone = self.folder / "alone"
        self.run_dltrain(self.configuration("adam"), "-q", "--output-dir", alone, "--max-steps", 1, "-s", "optimizer.learning_rate=0",
                         "-s", f"model.init_from={run / 'checkpoints' / 'latest' / 'ema.safetensors'}")
        (loaded,) = [line["eval_loss"] for line in support.metrics(alone) if "eval_loss" in line]
        self.assertEqual(loaded, during)

    def test_averages_before_the_first_step_are_the_initial_weights(self):
        run = self.folder / "run"
        self.run_dltrain(self.configuration("ema"), "-q", "--output-dir", run, "-s", "training.ema.start_step=1000")
        state = self.state_of(run)
        self.assertEqual(state["ema.safetensors"], state["model.safetensors"])

    def test_clipping_twice_is_refused(self):
        self.refused(USAGE, self.configuration("clip-value"), "--output-dir", self.folder / "run", "-s", "training.max_grad_norm=1",
                     says="clipped by its norm already")


if __name__ == "__main__":
    support.main()
