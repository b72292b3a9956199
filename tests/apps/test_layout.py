"""parallelism.layout auto, as processes. The search itself is tested in test_pipeline.py."""
import json
import re

import yaml

from support import MEMORY, SMALL, SOURCES, USAGE, DltrainTest, main, steps

GOLDEN = "tests/golden/language"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
AUTO = ("-s", "parallelism.layout=auto")


class Layout(DltrainTest):
    def chosen(self, result, ranks):
        """Data, tensor and pipeline ranks of the line that names the layout."""
        found = re.search(rf"layout of {ranks} ranks: data (\d+)(?:, context (\d+))?, tensor (\d+), pipeline (\d+)(?: \w+)?, zero_stage (\d), micro_batch_size (\d+), "
                          r"recompute \w+; \d+ considered, \d+ planned", result.out + result.err)
        self.assertTrue(found, str(result))
        data, context, tensor, pipeline = (int(group or 1) for group in found.groups()[:4])
        self.assertEqual(data * context * tensor * pipeline, ranks)
        return data, tensor, pipeline

    def test_a_run_with_the_chosen_layout_has_the_trajectory_of_torch_and_goes_on_in_another(self):
        golden = json.loads((SOURCES / GOLDEN / "losses.json").read_text())["cases"]["gpt2"]["f64"]
        configuration, run = SOURCES / GOLDEN / "gpt2.yaml", self.folder / "run"
        keep = ("-s", "checkpoint.save_steps=5", "-s", "checkpoint.save_total_limit=0")
        arguments = (configuration, *AUTO, *keep, "--output-dir", run)
        result = self.run_dltrain(*arguments, "--nproc-per-node", 2, env=ONE_THREAD)
        self.assertEqual((result.out + result.err).count("layout of 2 ranks"), 1, str(result))
        data, tensor, pipeline = self.chosen(result, 2)
        lines = steps(run)
        for i, line in enumerate(lines):
            for series in ("loss", "grad_norm"):
                self.assertLessEqual(abs(line[series] - golden[series][i]), 1e-5 * golden[series][i], f"{series} of step {i + 1}")
        parallelism = yaml.safe_load((run / "config.yaml").read_text())["parallelism"]
        self.assertEqual((parallelism["layout"], parallelism["tensor"], parallelism["pipeline"]), ("given", tensor, pipeline))
        # On other ranks another layout is chosen; one rank has none.
        for ranks in (4, 1):
            other = self.folder / f"ranks-{ranks}"
            result = self.run_dltrain(configuration, *AUTO, *keep, "--output-dir", other, "--resume", run / "checkpoints/step-000005",
                                      "--nproc-per-node", ranks, env=ONE_THREAD)
            self.assertEqual("layout of" in result.out + result.err, ranks > 1, str(result))
            for line, again in zip(lines[5:], steps(other), strict=True):
                self.assertLessEqual(abs(line["loss"] - again["loss"]), 1e-5 * line["loss"])

    def test_memory_decides(self):
        plan = ("plan", SOURCES / "configs/gpu/gpt2_xl.yaml", *AUTO, "-s", "training.micro_batch_size=null", "--gpu", "a100-40g", "--world", 8)
        self.chosen(self.run_dltrain(*plan), 8)
        result = self.run_dltrain(*plan[:-3], "t4", "--world", 2, "-s", "precision.compute=fp16", code=MEMORY)
        self.assertIn("fits t4; take more ranks", result.err)
        # The memory of this machine, and a run that does not fit it.
        small = (self.small(), "-q", *AUTO, "--nproc-per-node", 2, "--output-dir", self.folder / "run")
        self.run_dltrain(*small, "-s", "memory.budget=2GiB", "--max-steps", 2)  # 600 MiB under AddressSanitizer
        result = self.run_dltrain(*small, "--overwrite", "-s", "memory.budget=1MiB", "-s", "model.layers[0].out_features=200000", code=MEMORY)
        self.assertRegex(result.err, r"none of the \d+ layouts that were planned fits .*; take more ranks")
        self.assertEqual(result.err.count("error:"), 1, str(result))

    def test_a_dry_run_and_a_profile_choose_it_too(self):
        result = self.run_dltrain(self.small(), *AUTO, "--dry-run", "--nproc-per-node", 4)
        self.chosen(result, 4)
        self.assertRegex(result.out, r"\n *layout: given")
        result = self.run_dltrain("profile", self.small(), *AUTO, "--nproc-per-node", 2, "--steps", 2, "--output-dir", self.folder / "profile")
        self.chosen(result, 2)

    def test_what_it_cannot_choose_is_refused_with_its_place(self):
        images = SMALL.replace("shape: [12]", "shape: [6, 5, 3]").replace("layers:\n", "layers:\n    - batch_norm\n    - flatten\n")
        # In the second stage of a pipeline, which 15 samples a step make the only layout besides `tensor`.
        late = images.replace("    - batch_norm\n    - flatten\n", "    - {type: conv2d, out_channels: 4, kernel_size: 3}\n")
        late = late.replace("    - {type: dropout, rate: 0.2}\n", "    - batch_norm\n    - flatten\n").replace(
            "{type: linear, out_features: 24}", "{type: conv2d, out_channels: 4, kernel_size: 3}")
        for text, arguments, message in (
                (SMALL, ("-s", "parallelism.tensor=2"), "layout: auto chooses tensor; remove one of them"),
                (SMALL, ("-s", "parallelism.sequence_parallel=true"), "layout: auto chooses sequence_parallel; remove one of them"),
                (SMALL, ("-s", "parallelism.data=2"), "layout: auto chooses data; remove one of them"),
                (SMALL, ("-s", "training.micro_batch_size=2"), "parallelism.layout: auto chooses micro_batch_size; remove one of them"),
                (SMALL, ("-s", "memory.recompute=full"), "parallelism.layout: auto chooses recompute; remove one of them"),
                (late, ("-s", "training.global_batch_size=15"), "auto would choose the micro-batch, on which results depend"),
                (images, (), "on which results depend: layers.0 (batch_norm) takes statistics of a micro-batch; give training.micro_batch_size")):
            result = self.run_dltrain(self.small(text), "-q", *AUTO, *arguments, "--nproc-per-node", 2, "--output-dir", self.folder / "refused",
                                      code=USAGE)
            self.assertIn(message, result.err)
            self.assertEqual(result.err.count("error:"), 1, str(result))
        # It keeps a micro-batch on which results depend.
        result = self.run_dltrain(self.small(images), *AUTO, "-s", "training.micro_batch_size=4", "--max-steps", 2, "--nproc-per-node", 2,
                                  "--output-dir", self.folder / "kept")
        self.assertIn("micro_batch_size 4, ", result.out + result.err)
        # Batch norm of vectors cannot be measured with one sample.
        vectors = SMALL.replace("type: gelu", "type: batch_norm")
        result = self.run_dltrain(self.small(vectors), *AUTO, "-s", "training.micro_batch_size=4", "--max-steps", 2, "--nproc-per-node", 2,
                                  "--output-dir", self.folder / "vectors")
        self.assertIn("micro_batch_size 4, ", result.out + result.err)
        result = self.run_dltrain("fit", self.small(), *AUTO, "--world", 2, code=USAGE)
        self.assertIn("auto is for train, profile and plan", result.err)

    def test_layouts_that_are_refused_leave_room_for_others(self):
        # Its layouts with tensor, context or sharded ranks are refused, most of them because of 4 heads.
        text = """
model: {type: gpt2, vocab_size: 65, num_layers: 2, hidden_size: 32, num_heads: 4, max_positions: 32}
loss: {type: cross_entropy}
data: {train: {type: synthetic_tokens, vocab_size: 65, length: 32, samples: 64}}
optimizer: {type: adamw, learning_rate: 1.0e-3}
training: {global_batch_size: 8, max_steps: 2}
"""
        for ranks, setting in ((4, "training.reduction=fixed"), (3, "training.reduction=fast")):
            result = self.run_dltrain(self.small(text), *AUTO, "-s", setting, "--nproc-per-node", ranks, "--output-dir", self.folder / setting)
            data, tensor, pipeline = self.chosen(result, ranks)
            self.assertEqual((tensor, data * pipeline), (1, ranks))  # 3 stages of 2 blocks, too
        result = self.run_dltrain("plan", self.small(text), "--search", "--world", 4, "--gpu", "l4", "-s", "training.reduction=fixed")
        self.assertRegex(result.out, r"\n  [1-9]\d* more meshes are refused, the first because of: .*reduction")


main()
