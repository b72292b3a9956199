"""Whether a run fits: what is said before the first step holds, and every remedy has been planned; micro-batches that fit."""
import json
import os
import re
import resource
import unittest

import support
from support import MEMORY, OK, SMALL, SOURCES, USAGE, DltrainTest, metrics

# Memory is counted by thread: the sizes below are those of two.
os.environ["OMP_NUM_THREADS"] = "2"
# Sanitizers take addresses and memory that no plan knows.
SANITIZED = support.is_sanitized()
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
# A wider model, whose activations weigh more than its parameters, with an evaluation and checkpoints.
WIDE = SMALL.replace("out_features: 24", "out_features: 2048").replace("global_batch_size: 16", "global_batch_size: 1024") \
    .replace("max_steps: 40", "max_steps: 3").replace("samples: 100", "samples: 4096").replace("save_steps: 10", "save_steps: 1")


def size(text):
    number, unit = text.split()
    return float(number) * UNITS[unit]


def verdict(text):
    """(fits, needs, has) of the last verdict."""
    said, needs, has = re.findall(r"(at most|does not fit: needs) ([\d.]+ \w+).*?, .* ([\d.]+ \w+)$", text, re.M)[-1]
    return said == "at most", size(needs), size(has)


def limited(kind, limit):
    return lambda: resource.setrlimit(kind, (int(limit), int(limit)))


class Fits(DltrainTest):
    def wide(self):
        return self.write("wide.yaml", WIDE)

    @unittest.skipIf(SANITIZED, "sanitizers take memory")
    def test_the_peak_is_that_of_the_run(self):
        """Not of the process that has started it, whose peak getrusage() takes over."""
        held = b"x" * (400 << 20)
        run = self.folder / "run"
        self.run_dltrain(self.small(), "-q", "--output-dir", run)
        self.assertGreater(len(held), 0)
        self.assertLess(json.loads((run / "summary.json").read_text())["peak_rss_mib"], 300)

    def test_a_base_in_codes_has_any_depth(self):
        """Values are added while others are read."""
        for layers in range(1, 9):
            self.run_dltrain("plan", self.write("coded.yaml", f"""
model: {{type: gpt2, num_layers: {layers}, hidden_size: 64, num_heads: 4, max_positions: 64, lora: {{rank: 4, base: nf4}}}}
data: {{type: synthetic_tokens, vocab_size: 200, length: 32, samples: 64}}
optimizer: {{type: adamw, learning_rate: 1.0e-3}}
training: {{global_batch_size: 4, max_steps: 5}}
"""))

    @unittest.skipIf(SANITIZED, "sanitizers take memory")
    def test_a_run_stays_below_what_its_plan_says(self):
        convnet = SOURCES / "tests/golden/convnet/relu-adamw.yaml"
        for i, arguments in enumerate(([self.small()], [self.wide()], [self.wide(), "-s", "training.micro_batch_size=64"],
                                       [convnet, "-s", "checkpoint.save_steps=1"], [self.wide(), "-s", "checkpoint.async=false"])):
            fits, needs, has = verdict(self.run_dltrain("plan", *arguments, "--max-steps", 3).out)
            self.assertTrue(fits)
            self.assertLess(needs, has)
            result = self.folder / f"{i}.json"
            run = self.run_dltrain(*arguments, "--max-steps", 3, "--output-dir", self.folder / str(i), "--result", result)
            self.assertRegex(run.err + run.out, r"memory: at most [\d.]+ MiB needed, this machine has ")
            self.assertLess(json.loads(result.read_text())["peak_rss_mib"] * 2**20, needs, str(arguments))

    @unittest.skipIf(SANITIZED, "sanitizers take memory")
    def test_initialization_of_a_large_embedding_stays_below_the_plan(self):
        # 154 MB in f32, with almost no state beside it.
        gpt = [SOURCES / "configs/bench/gpt2_124m.yaml", "-s", "precision.compute=bf16", "-s", "model.lora={rank: 16, base: nf4}", "--max-steps", 1]
        result = self.folder / "result.json"
        run = self.run_dltrain(*gpt, "--output-dir", self.folder / "run", "--result", result)
        needs = size(re.search(r"memory: at most ([\d.]+ \w+)", run.err + run.out)[1])
        self.assertLess(json.loads(result.read_text())["peak_rss_mib"] * 2**20, needs)
        self.assertLess(needs, 700 * 2**20)  # 664 MiB without AVX-512, whose products of bf16 need more room

    @unittest.skipIf(SANITIZED, "sanitizers take memory")
    def test_what_is_said_to_fit_a_limit_fits_and_the_rest_ends_before_the_run(self):
        for kind, name in ((resource.RLIMIT_AS, "ulimit -v allows addresses of"), (resource.RLIMIT_DATA, "ulimit -d allows")):
            said = self.run_dltrain("plan", self.wide(), preexec_fn=limited(kind, 2**30), code=None).out
            self.assertIn(name, said)
            needs = verdict(said)[1]
            run = self.folder / f"run-{kind}"
            few = ["-q", "--output-dir", run]
            for missing in (64, 24, 8):
                result = self.refused(MEMORY, self.wide(), *few, says=f"does not fit: needs", preexec_fn=limited(kind, needs - missing * 2**20))
                self.assertIn(name, result.err)
                self.assertFalse((run / "config.yaml").exists())
            self.run_dltrain(self.wide(), *few, preexec_fn=limited(kind, needs + 4 * 2**20))

    @unittest.skipIf(SANITIZED, "sanitizers take memory")
    def test_every_remedy_is_a_plan(self):
        budget = ["-s", "memory.budget=80MiB"]
        model = "layers: [{type: linear, out_features: 512}, {repeat: {times: 6, layers: [{type: linear, out_features: 512}, {type: gelu}, {type: dropout}]}}, " \
                "{type: linear, out_features: 4}]"
        text = re.sub(r"model:\n(?:  .*\n)+", "model: {" + model + "}\n", WIDE)
        path = self.write("deep.yaml", text)
        result = self.run_dltrain("plan", path, *budget, code=MEMORY)
        fits, needs, has = verdict(result.out)
        self.assertFalse(fits)
        self.assertEqual(has, 80 * 2**20)
        remedies = re.findall(r"^  (\S+=\S.*?)( on (\d+) machines.*?)? → ([\d.]+ \w+)(?:, [+-]\d+ % FLOP)?(, fits)?$", result.out, re.M)
        self.assertGreaterEqual(len(remedies), 4, str(result))
        self.assertIn("memory.recompute=blocks", [remedy[0] for remedy in remedies])
        self.assertIn("optimizer.moments=8bit", [remedy[0] for remedy in remedies])
        for settings, _, machines, said, suits in remedies:
            if machines:
                continue  # the plan of one rank is that of `plan --world`
            words = [word.replace("'", "") for word in re.findall(r"(?:[^\s']|'[^']*')+", settings)]
            again = self.run_dltrain("plan", path, *budget, *(part for word in words for part in ("-s", word)), code=OK if suits else MEMORY)
            delta = 0.05 if "auto" in settings else 0.01  # which depends on what the process has
            self.assertAlmostEqual(verdict(again.out)[1] / size(said), 1, delta=delta)
        # A smaller micro-batch beside gradient_accumulation_steps, and what fit prints.
        steps = ["-s", "training.gradient_accumulation_steps=2"]
        said = self.run_dltrain("plan", path, *budget, *steps, code=MEMORY).out
        (pair,) = re.findall(r"^  (training.micro_batch_size=\d+) (training.gradient_accumulation_steps=\d+) → ", said, re.M)
        self.run_dltrain("plan", path, *steps, "-s", pair[0], "-s", pair[1])
        (best,) = re.findall(r"largest that fits: (-s \S+ -s \S+)\n", self.run_dltrain("fit", path, *steps).out)
        self.run_dltrain("plan", path, *steps, *best.split())
        for command in (["train", path, "-q", "--output-dir", self.folder / "run"], ["train", path, "--dry-run"]):
            result = self.run_dltrain(*command, *budget, code=MEMORY)
            self.assertIn("  memory.recompute=blocks → ", result.out + result.err)
        self.assertFalse((self.folder / "run" / "config.yaml").exists())

    def test_ranks_share_the_memory_of_their_machine(self):
        two = ["-s", "parallelism.data=2"]
        one, both = (verdict(self.run_dltrain("plan", self.wide(), *extra).out) for extra in ([], two))
        self.assertGreater(both[1], 1.7 * one[1])
        said = self.run_dltrain("plan", self.wide(), *two, "-s", f"memory.budget={int(both[1] * 1.02)}").out
        self.assertIn(" on 2 ranks, memory.budget is ", said)
        run = ["--nproc-per-node", 2, "-q", "--output-dir", self.folder / "run"]
        self.run_dltrain(self.wide(), *run, "-s", f"memory.budget={int(both[1] * 1.1)}")
        result = self.run_dltrain(self.wide(), *run, "--overwrite", "-s", f"memory.budget={int(both[1] * 0.9)}", code=MEMORY)
        self.assertEqual(result.err.count("does not fit: needs"), 1, str(result))
        self.assertIn("on 2 ranks, memory.budget is", result.err)
        stages = self.run_dltrain("plan", self.wide(), "-s", "parallelism={pipeline: 2}", "-s", "training.micro_batch_size=256").out
        self.assertIn(" on 2 ranks, this machine has", stages)
        self.assertNotIn("memory: ", self.run_dltrain("plan", self.wide(), "--world", 2).out)
        self.run_dltrain("plan", self.wide(), "--world", 2, "-s", "memory.budget=10MB", code=MEMORY)

    def test_a_plan_for_a_gpu_says_whether_it_fits_that(self):
        gpt = SOURCES / "configs/gpu/gpt2_124m.yaml"
        result = self.run_dltrain("plan", gpt, "--gpu", "l4", code=MEMORY)
        self.assertRegex(result.out, r"memory: does not fit: needs [\d.]+ GiB, l4 has 21.98 GiB\n  memory.recompute=auto → .*, fits\n  memory.recompute=selective → .*, fits\n")
        self.assertRegex(result.out, r"\n  training.micro_batch_size=32 → .*, fits\n")
        self.run_dltrain("plan", gpt, "--gpu", "l4", "-s", "training.micro_batch_size=32")
        lines = self.run_dltrain("plan", gpt, "--gpu", "all").out.splitlines()
        self.assertTrue(lines[1].endswith(": fits") and lines[5].endswith(": does not fit"), lines)
        self.assertNotIn(": fits", self.run_dltrain("plan", gpt, "--gpu", "all", "-s", "memory.budget=1GiB", code=MEMORY).out)
        few = ["--world", 4, "-s", "memory.budget=3GiB", "-s", "training.micro_batch_size=1"]
        result = self.run_dltrain("plan", gpt, "--gpu", "l4", *few, code=MEMORY)
        self.assertRegex(result.out, r"\n  parallelism.zero_stage=3 → .*, fits\n")

    @unittest.skipIf(SANITIZED, "sanitizers take memory")
    def test_recomputation_finds_the_fastest_choice_for_a_budget(self):
        gpt = SOURCES / "configs/bench/gpt_char.yaml"
        auto = ["plan", gpt, "-s", "memory.recompute=auto"]

        def extra(result):
            found = re.search(r"recompute: \d+ forward calls run again, ([+-][\d.]+) % FLOP", result.out)
            return float(found[1]) if found else 0.0

        def needs(mode):
            result = self.run_dltrain("plan", gpt, "-s", f"memory.recompute={mode}")
            return verdict(result.out)[1], extra(result)

        most, _ = needs("none")
        # 4 MiB are spared.
        for mode in ("none", "selective", "blocks", "full"):
            bytes_needed, flop = needs(mode)
            result = self.run_dltrain(*auto, "-s", f"memory.budget={int(bytes_needed + 5 * 2**20)}")
            self.assertTrue(verdict(result.out)[0], str(result))
            self.assertEqual(result.err, "")
            self.assertLessEqual(extra(result), flop + 0.5, mode)  # it compares times
        self.assertIn("recompute: no forward call runs again\n", self.run_dltrain(*auto).out)
        least = self.run_dltrain(*auto, "-s", "memory.budget=100MiB", code=MEMORY)
        self.assertLess(verdict(least.out)[1], most / 2)
        for wrong, says in (("keep_layers=[h.9.*]", "'h.9.*' matches no layer"), ("keep_layers=[h.0.*]", "keep_layers has no effect with recompute: none"),
                            ("recompute_layers=nothing", "'nothing' matches no layer")):
            extras = [] if "no effect" in says else ["-s", "memory.recompute=auto"]
            self.refused(USAGE, "plan", gpt, *extras, "-s", f"memory.{wrong}", says=says)
        self.refused(USAGE, *auto, "-s", "parallelism={pipeline: 2, pipeline_schedule: interleaved, virtual_stages: 2}",
                     says="memory.recompute auto cannot be combined with parallelism.virtual_stages 2")

    def test_the_frontier_shows_memory_against_time(self):
        gpt = SOURCES / "configs/bench/gpt_char.yaml"
        out = self.run_dltrain("plan", gpt, "--frontier").out
        rows = re.findall(r"^  (\w+) +([\d.]+ \w+) +(\d+) +\S+ +([+-][\d.]+)%  [█░]+$", out, re.M)
        auto = [(size(row[1]), float(row[3])) for row in rows if row[0] == "auto"]
        self.assertGreater(len(auto), 10, out)
        self.assertEqual(sorted(auto, key=lambda row: (-row[0], row[1])), auto)
        self.assertEqual(sorted(auto, key=lambda row: row[1]), auto)
        self.assertEqual({row[0] for row in rows}, {"none", "selective", "blocks", "full", "auto"})
        self.refused(USAGE, "plan", gpt, "--frontier", "--gpu", "all", says="require one GPU")

    def test_movement_compares_a_plan_with_its_ops_one_by_one(self):
        out = self.run_dltrain("plan", SOURCES / "configs/gpu/bert_large.yaml", "--gpu", "h100", "--movement").out
        rows = {row[0].strip(): (size(row[1]), size(row[2]), float(row[3])) for row in re.findall(r"^  ([^\n\d]+?)  +([\d.]+ \w+) +([\d.]+ \w+) +([+-][\d.]+)%$", out, re.M)}
        single, fused, change = rows.pop("in all")
        # Ivanov and others 2020: 22.9 % less than PyTorch, for the encoder of this model.
        self.assertLess(rows.pop("forward and backward of repeated blocks")[2], -22.9)
        self.assertEqual(set(rows), {"products", "norms, losses, sums", "element-wise", "update", "rows by index"}, out)
        self.assertAlmostEqual(sum(row[0] for row in rows.values()) / single, 1, delta=0.01)
        self.assertAlmostEqual(100 * (fused / single - 1), change, delta=0.1)
        self.assertLess(change, -10)
        least = re.search(r"written once and read once: ([\d.]+ \w+), (\d+) % of", out)
        self.assertAlmostEqual(100 * size(least[1]) / fused, int(least[2]), delta=1)
        self.refused(USAGE, "plan", self.small(), "--movement", "--frontier", says="--frontier excludes --movement")

    @unittest.skipIf(SANITIZED, "sanitizers take memory")
    def test_ranks_choose_the_same_recomputation(self):
        text = re.sub(r"model:\n(?:  .*\n)+", "model: {layers: [{type: linear, out_features: 512}, {repeat: {times: 12, layers: [{type: linear, out_features: 512}, "
                      "{type: gelu}, {type: dropout}]}}, {type: linear, out_features: 4}]}\n", WIDE)
        path = self.write("deep.yaml", text)
        two = [path, "-q", "--max-steps", 3, "--nproc-per-node", 2, "-s", "parallelism.zero_stage=3"]
        planned = ["plan", path, "-s", "parallelism.data=2", "-s", "parallelism.zero_stage=3", "-s"]
        most, least = (verdict(self.run_dltrain(*planned, f"memory.recompute={mode}").out)[1] for mode in ("none", "full"))
        budget = int(least + 16 * 2**20)
        self.assertLess(budget, most)
        self.run_dltrain(*two, "--output-dir", self.folder / "auto", "-s", "memory.recompute=auto", "-s", f"memory.budget={budget}")
        self.run_dltrain(*two, "--output-dir", self.folder / "none")
        self.assert_same_state(self.folder / "auto", self.folder / "none")

    def test_mistakes_in_sizes_are_told(self):
        for wrong in ("lots", "12 apples", "-1GB", "''", "80"):
            self.refused(USAGE, "plan", self.small(), "-s", f"memory.budget={wrong}", says="is neither device nor a size of at least 1 MiB")
        self.refused(USAGE, "fit", self.small(), "--memory", "big", says="memory.budget")
        self.refused(USAGE, "plan", self.small(), "-s", "memory.max_memory=1GB", says="did you mean 'budget'?")


class MicroBatches(DltrainTest):
    def needs(self, path, micro_batch):
        return verdict(self.run_dltrain("plan", path, "-s", f"training.micro_batch_size={micro_batch}").out)[1]

    def test_measured_speeds_choose_among_micro_batches_and_store_nothing(self):
        path = self.write("wide.yaml", WIDE)
        before = sorted(self.folder.iterdir())
        lines = self.run_dltrain("fit", path, "--measure").out.splitlines()
        self.assertRegex(lines[1], r"step \(ms\) +samples/s$")
        speeds = {int(line.split()[0]): float(line.split()[-1]) for line in lines[2:-1]}
        self.assertGreater(len(speeds), 4)
        chosen = int(lines[-1].rsplit("=", 1)[1])
        self.assertTrue(lines[-1].startswith("the smallest within 2 % of the fastest: "), lines[-1])
        self.assertGreater(speeds[chosen], 0.97 * max(speeds.values()))
        self.assertEqual(sorted(self.folder.iterdir()), before)
        self.refused(USAGE, "fit", path, "--measure", "-s", "parallelism.data=2", says="--measure runs on one rank")

    @unittest.skipIf(SANITIZED, "sanitizers take memory")
    def test_auto_is_the_largest_that_fits_and_a_resumed_run_keeps_it(self):
        path = self.write("wide.yaml", WIDE)
        auto = [path, "-q", "-s", "training.micro_batch_size=auto"]
        budget = self.needs(path, 256) + 4.5 * 2**20  # 4 MiB are spared
        run, other = self.folder / "run", self.folder / "other"
        self.run_dltrain(*auto, "--output-dir", run, "-s", f"memory.budget={int(budget)}")
        self.assertIn("micro_batch_size: 256\n", (run / "config.yaml").read_text())
        self.run_dltrain(path, "-q", "--output-dir", other, "-s", "training.micro_batch_size=256")
        self.assert_same_state(run, other)
        # With more memory the number stays, in the same run only.
        self.run_dltrain(*auto, "--output-dir", run, "--resume", "auto", "--max-steps", 5)
        self.assertIn("micro_batch_size: 256\n", (run / "config.yaml").read_text())
        self.assertRegex(self.run_dltrain("plan", *auto[:1], *auto[2:]).out, r"1 rank × 1 micro-step of 1024\n")
        self.assertRegex(self.run_dltrain("plan", *auto[:1], *auto[2:], "--gpu", "h100").out, r"1 rank × 1 micro-step of 1024\n")
        result = self.run_dltrain(*auto, "--output-dir", self.folder / "small", "-s", "memory.budget=20MiB", code=MEMORY)
        self.assertIn("does not fit: needs", result.err)
        self.run_dltrain(*auto, "--nproc-per-node", 2, "--output-dir", self.folder / "ranks", "-s", f"memory.budget={int(2 * budget)}")
        self.assertRegex((self.folder / "ranks" / "config.yaml").read_text(), r"micro_batch_size: (128|256)\n")

    @unittest.skipIf(SANITIZED, "sanitizers take memory")
    def test_a_micro_batch_that_auto_takes_is_not_refused(self):
        path = self.write("wide.yaml", WIDE)
        needs = self.needs(path, 256)
        for more in range(4):
            self.run_dltrain(path, "-q", "--max-steps", 1, "-s", "training.micro_batch_size=auto", "-s",
                             f"memory.budget={int(needs + more * 2**20)}", "--output-dir", self.folder / f"run{more}")

    def test_auto_gives_each_stage_of_a_pipeline_a_micro_batch(self):
        out = self.run_dltrain("plan", self.write("wide.yaml", WIDE), "-s", "parallelism.pipeline=2", "-s", "training.micro_batch_size=auto").out
        self.assertRegex(out, r" × 2 micro-steps of 512\n")

    def test_auto_is_refused_where_results_depend_on_it(self):
        convnet = SOURCES / "configs/bench/resnet18_cifar.yaml"
        self.refused(USAGE, "plan", convnet, "-s", "training.micro_batch_size=auto",
                     says=["auto: results would depend on the memory of the machine, because bn1 (batch_norm)", "dltrain fit"])
        alone = self.write("alone.yaml", SMALL.replace("global_batch_size: 16", "micro_batch_size: auto"))
        self.refused(USAGE, "plan", alone, says="auto divides the global batch")
        self.refused(USAGE, "plan", self.small(), "-s", "training.micro_batch_size=auto", "-s", "training.gradient_accumulation_steps=2",
                     says="auto chooses gradient_accumulation_steps too")
        self.refused(USAGE, "plan", self.small(), "-s", "training.micro_batch_size=all", says="expected an integer or auto")

    @unittest.skipIf(SANITIZED, "sanitizers take memory")
    def test_fit_prints_the_micro_batches_and_the_best(self):
        path = self.write("wide.yaml", WIDE)
        out = self.run_dltrain("fit", path).out
        rows = re.findall(r"^ +(\d+)  +(\d+)  +([\d.]+ \w+)  +([\d.]+ \w+)$", out, re.M)
        self.assertEqual([(int(row[0]), int(row[1])) for row in rows], [(2**i, 2**(10 - i)) for i in range(11)])
        self.assertIn("the largest that fits: -s training.micro_batch_size=1024\n", out)
        for i in (3, 10):
            self.assertAlmostEqual(size(rows[i][3]) / self.needs(path, 2**i), 1, delta=0.01)
        out = self.run_dltrain("fit", path, "--memory", f"{int((size(rows[8][3]) + size(rows[9][3])) / 2)}").out
        self.assertRegex(out, r"\n +512 .*does not fit\n +1024 .*does not fit\n(.*\n)*the largest that fits: -s training.micro_batch_size=256\n")
        result = self.run_dltrain("fit", path, "--memory", "20MB", code=MEMORY)
        self.assertRegex(result.out, r"does not fit: needs .*, memory.budget is 19.1 MiB\n")
        # Where only one micro-batch is possible, and where one of a single sample is not.
        self.run_dltrain("fit", path, "--memory", "20MB", "-s", "training.optimizer_in_backward=true", "-s", "training.clip_norm=previous",
                         code=MEMORY)
        norm = self.write("norm.yaml", WIDE.replace("{type: gelu}", "{type: batch_norm}"))
        out = self.run_dltrain("fit", norm).out
        self.assertEqual([int(row) for row in re.findall(r"^ +(\d+)  +\d+ ", out, re.M)], [2**i for i in range(1, 11)])
        # The choice on a GPU is within 2 % of the fastest, and no smaller one is.
        out = self.run_dltrain("fit", SOURCES / "configs/gpu/gpt2_124m.yaml", "--gpu", "l4").out
        rates = {int(row[0]): float(row[1]) for row in re.findall(r"^ +(\d+) .* ([\d.]+)$", out, re.M)}
        best = int(re.search(r"the smallest within 2 % of the fastest: -s training.micro_batch_size=(\d+)", out)[1])
        good = [number for number, rate in rates.items() if rate * 1.02 >= max(rates.values())]
        self.assertEqual(best, min(good), out)
        self.assertRegex(out, r"\n +64 .*does not fit\n")
        self.refused(USAGE, "fit", path, "--gpu", "all", says="fit requires one GPU")
        self.refused(USAGE, "fit", path, "--node-link", 1e9, says="--node-link requires --gpu")
        convnet = SOURCES / "configs/bench/resnet18_cifar.yaml"
        self.assertIn("warning: results depend on the micro-batch: bn1 (batch_norm)", self.run_dltrain("fit", convnet).out)


class LearningRates(DltrainTest):
    def rates(self, name, *extra):
        run = self.folder / name
        self.run_dltrain(self.small(), "-q", "--output-dir", run, "--max-steps", 8, *extra)
        return [line["learning_rate"] for line in metrics(run) if "learning_rate" in line]

    def test_learning_rates_grow_with_the_batch(self):
        plain = self.rates("plain")
        for rule, factor in (("linear", 4), ("sqrt", 2)):
            scaled = self.rates(rule, "-s", f"optimizer.scale_learning_rate={{rule: {rule}, base_batch: 4}}")
            for one, other in zip(plain[:-1], scaled[:-1], strict=True):  # the last is 0
                self.assertAlmostEqual(other / one, factor, places=6)
        out = self.run_dltrain("plan", self.small(), "-s", "optimizer.scale_learning_rate={rule: sqrt, base_batch: 64}").out
        self.assertIn("learning rate: 0.005, that of a batch of 64 times 0.5 (scale_learning_rate)\n", out)
        for wrong, says in (("{rule: cube, base_batch: 4}", "cube"), ("{rule: linear}", "base_batch"), ("{rule: linear, base_batch: 0}", "at least 1")):
            self.refused(USAGE, "plan", self.small(), "-s", f"optimizer.scale_learning_rate={wrong}", says=says)


if __name__ == "__main__":
    support.main()
