"""Learning from trained models: distillation from a teacher, and a trained trunk under a new head."""
import csv
import gzip
import json
import math
import shutil
import unittest

import support
from support import SMALL, SOURCES, STORAGE, USAGE, safetensors, steps

DIGITS = SOURCES / "data" / "digits.csv.gz"
# One step sees all samples, and changes nothing.
STILL = (SMALL.replace("    - {type: dropout, rate: 0.2}\n", "").replace("global_batch_size: 16", "global_batch_size: 100")
         .replace("learning_rate: 1.0e-2", "learning_rate: 0").replace("max_steps: 40", "max_steps: 1"))


def softened(probabilities, temperature):
    powers = [p ** (1 / temperature) for p in probabilities]
    return [p / sum(powers) for p in powers]


class Distillation(support.DltrainTest):
    def setUp(self):
        super().setUp()
        self.teacher = self.folder / "teacher"
        self.run_dltrain(self.small(), "-q", "--output-dir", self.teacher)

    def probabilities(self, run):
        path = self.folder / "out.jsonl"
        self.run_dltrain("predict", "--checkpoint", run, "-o", path, "--split", "train", "--top-k", 4)
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return [[entry["probability"] for entry in sorted(row["top"], key=lambda e: e["class"])] for row in rows], [row["target"] for row in rows]

    def distil(self, text, run, *arguments, temperature=2, alpha=0.5):
        self.run_dltrain(self.small(text), "-q", "--output-dir", run, "-s",
                         f"loss={{type: distillation, teacher: {self.teacher}, temperature: {temperature}, alpha: {alpha}}}", *arguments)

    def test_the_loss_is_that_of_its_definition(self):
        teacher, labels = self.probabilities(self.teacher)
        for temperature, alpha in ((1, 1), (3, 1), (2, 0.25), (2, 0)):
            run = self.folder / f"run-{temperature}-{alpha}"
            self.distil(STILL, run, temperature=temperature, alpha=alpha)
            student, _ = self.probabilities(run)
            expected = 0
            for t, s, label in zip(teacher, student, labels, strict=True):
                t_soft, s_soft = softened(t, temperature), softened(s, temperature)
                divergence = sum(p * math.log(p / q) for p, q in zip(t_soft, s_soft) if p > 0)
                expected += (1 - alpha) * -math.log(s[label]) + alpha * temperature**2 * divergence
            self.assertAlmostEqual(steps(run)[0]["loss"] / (expected / 100), 1, delta=2e-5)

    def test_the_check_that_inputs_matter_does_not_zero_those_of_the_teacher(self):
        said = self.run_dltrain("check", self.small(), "-s", "data.train.samples=1000", "-s",
                                f"loss={{type: distillation, teacher: {self.teacher}, alpha: 1}}").out
        self.assertIn("PASS  inputs matter", said)

    def test_a_teacher_of_another_alphabet_is_refused(self):
        configurations = []
        for name, letters in (("a", "abcdefgh "), ("b", "bcdefghi ")):
            configurations.append(self.write(f"{name}.yaml", f"""
model: {{type: gpt2, num_layers: 1, hidden_size: 8, num_heads: 1}}
data: {{type: text, path: {self.write(f"{name}.txt", letters * 60)}, tokenizer: char, sequence_length: 8, eval_fraction: 0.2}}
optimizer: {{type: adamw, learning_rate: 0.01}}
training: {{global_batch_size: 4, max_steps: 2}}
"""))
        teacher = self.folder / "text-teacher"
        self.run_dltrain(configurations[1], "-q", "--output-dir", teacher)
        self.refused(USAGE, configurations[0], "--output-dir", self.folder / "pupil", "-s", f"loss={{type: distillation, teacher: {teacher}}}",
                     says='was trained with another tokenizer: id 1 is "b" there and "a" here')
        self.assertIn("was trained with another tokenizer than that of the data: id 1",
                      self.run_dltrain("eval", configurations[0], "--checkpoint", teacher).err)

    def test_samples_whose_label_is_ignored_learn_nothing_from_the_teacher_either(self):
        teacher, labels = self.probabilities(self.teacher)
        run = self.folder / "run"
        self.run_dltrain(self.small(STILL), "-q", "--output-dir", run, "-s", f"loss={{type: distillation, teacher: {self.teacher}, "
                         "temperature: 2, alpha: 0.5, loss: {type: cross_entropy, ignore_index: 3}}")
        student, _ = self.probabilities(run)
        expected = counted = 0
        for t, s, label in zip(teacher, student, labels, strict=True):
            if label == 3:
                continue
            t_soft, s_soft = softened(t, 2), softened(s, 2)
            expected += 0.5 * -math.log(s[label]) + 0.5 * 4 * sum(p * math.log(p / q) for p, q in zip(t_soft, s_soft) if p > 0)
            counted += 1
        self.assertLess(counted, len(labels))
        self.assertAlmostEqual(steps(run)[0]["loss"] / (expected / counted), 1, delta=2e-5)

    def test_a_student_comes_closer_to_its_teacher_and_keeps_none_of_its_weights(self):
        student, plain = self.folder / "student", self.folder / "plain"
        narrow = SMALL.replace("out_features: 24", "out_features: 10")
        self.distil(narrow, student, alpha=1)
        self.run_dltrain(self.small(narrow), "-q", "--output-dir", plain)
        self.assertEqual(set(safetensors(student / "checkpoints/latest/model.safetensors")),
                         {f"layers.{i}.{name}" for i in (0, 3) for name in ("weight", "bias")})
        teacher, _ = self.probabilities(self.teacher)

        def distance(run):
            return sum(abs(p - q) for a, b in zip(teacher, self.probabilities(run)[0], strict=True) for p, q in zip(a, b))

        self.assertLess(distance(student), distance(plain))
        # The student stands alone: the teacher is not needed to use it.
        shutil.rmtree(self.teacher)
        self.run_dltrain("eval", "--checkpoint", student)

    def test_resumed_and_on_two_ranks_it_is_the_same_run(self):
        whole, run, ranks, micro, zero = (self.folder / name for name in ("whole", "run", "ranks", "micro", "zero"))
        text = SMALL.replace("type: cosine", "type: constant")
        self.distil(text, whole)
        for limit in (13, 40):
            self.distil(text, run, "--resume", "auto", "--max-steps", limit)
        self.assert_same_state(run, whole)
        environment = {"OMP_NUM_THREADS": "1"}
        for folder, arguments in ((ranks, ("--nproc-per-node", 2)), (micro, ("-s", "training.micro_batch_size=8")),
                                  (zero, ("--nproc-per-node", 2, "-s", "parallelism.zero_stage=3"))):
            self.run_dltrain(self.small(text), "-q", "--output-dir", folder, "-s", f"loss={{type: distillation, teacher: {self.teacher}}}",
                             *arguments, env=environment)
        self.assert_same_state(ranks, micro)
        for a, b in zip(steps(zero), steps(micro), strict=True):
            self.assertLessEqual(abs(a["loss"] - b["loss"]), 1e-5 * b["loss"])
        # Rank 0 opens the teacher once more where it chooses for all.
        for choice in ("training.micro_batch_size=auto", "memory.recompute=auto"):
            self.run_dltrain(self.small(text), "-q", "--overwrite", "--output-dir", ranks, "--nproc-per-node", 2, "-s", choice, "-s",
                             f"loss={{type: distillation, teacher: {self.teacher}}}", "-s", "parallelism.timeout=60", env=environment)

    def test_several_teachers_are_a_weighted_mean_of_their_distributions(self):
        other = self.folder / "other"
        self.run_dltrain(self.small(SMALL.replace("out_features: 24", "out_features: 9")), "-q", "--output-dir", other, "-s", "seed=5")
        teachers, labels = [self.probabilities(run)[0] for run in (self.teacher, other)], self.probabilities(other)[1]
        both = f"loss={{type: distillation, teacher: [{self.teacher}, {other}], temperature: 3, alpha: 0.25"
        for weights, shares in (("", (0.5, 0.5)), (", teacher_weights: [3, 1]", (0.75, 0.25))):
            run = self.folder / f"run{shares[0]}"
            self.run_dltrain(self.small(STILL), "-q", "--output-dir", run, "-s", both + weights + "}")
            student, _ = self.probabilities(run)
            expected = 0
            for a, b, s, label in zip(*teachers, student, labels, strict=True):
                soft = [shares[0] * p + shares[1] * q for p, q in zip(softened(a, 3), softened(b, 3))]
                divergence = sum(p * math.log(p / q) for p, q in zip(soft, softened(s, 3)) if p > 0)
                expected += 0.75 * -math.log(s[label]) + 0.25 * 9 * divergence
            self.assertAlmostEqual(steps(run)[0]["loss"] / (expected / 100), 1, delta=2e-5)
        # Two equal teachers are one.
        one, two = self.folder / "one", self.folder / "two"
        self.distil(SMALL, one)
        self.run_dltrain(self.small(), "-q", "--output-dir", two, "-s", f"loss={{type: distillation, teacher: [{self.teacher}, {self.teacher}]}}")
        for a, b in zip(steps(one), steps(two), strict=True):
            self.assertLessEqual(abs(a["loss"] - b["loss"]), 1e-5 * b["loss"])
        # A resumed run has the same teachers, in the same order.
        path = self.folder / "half"
        for limit in (20, 40):
            self.run_dltrain(self.small(SMALL.replace("type: cosine", "type: constant")), "-q", "--output-dir", path, "--resume", "auto",
                             "--max-steps", limit, "-s", both + "}")
        self.refused(USAGE, self.small(SMALL.replace("type: cosine", "type: constant")), "--output-dir", path, "--resume", "auto", "--max-steps", 50,
                     "-s", both.replace(str(self.teacher), "X").replace(str(other), str(self.teacher)).replace("X", str(other)) + "}",
                     says="weights of the teacher")
        self.refused(USAGE, self.small(), "-s", both + ", teacher_weights: [1]}", says="1 weight for 2 teachers: give one for each teacher")
        self.refused(USAGE, self.small(), "-s", both + ", teacher_weights: [1, -1]}", says="loss.teacher_weights[1] must be above 0")

    def test_teachers_that_do_not_fit_are_refused(self):
        path, run = self.small(SMALL.replace("out_features: 4", "out_features: 5")), self.folder / "run"
        self.refused(USAGE, path, "-s", f"loss={{type: distillation, teacher: {self.teacher}}}", "--output-dir", run,
                     says="the teacher's output is [16, 4], the model's is [16, 5]")
        self.refused(STORAGE, path, "-s", f"loss={{type: distillation, teacher: {self.folder}}}", "--output-dir", run, says="contains no checkpoint")
        self.refused(USAGE, path, "-s", "loss.type=distillation", "--output-dir", run, says="missing key 'teacher'")
        self.assertFalse(run.exists())


@unittest.skipUnless(DIGITS.exists(), "data/digits.csv.gz is not there: scripts/prepare_digits.sh")
class Transfer(support.DltrainTest):
    TEXT = """
name: transfer
model:
  layers:
    - {type: linear, out_features: 64, name: trunk}
    - relu
    - {type: linear, out_features: 5, name: HEAD}
data: {type: csv, path: PATH, scale: 0.0625, eval_fraction: 0.2}
optimizer: {type: adamw, learning_rate: 3.0e-3}
training: {global_batch_size: 32, max_steps: 300}
"""

    def configuration(self, name, head):
        text = self.TEXT.replace("PATH", str(self.folder / f"{name}.csv")).replace("HEAD", head)
        return self.write(f"{name}.yaml", text)

    def test_a_trunk_of_the_digits_0_to_4_reads_5_to_9_under_a_new_head(self):
        with gzip.open(DIGITS, "rt") as file:
            rows = [(line[:-1], int(line[-1])) for line in csv.reader(file)]
        for name, first in (("low", 0), ("high", 5)):
            chosen = [pixels + [str(label - first)] for pixels, label in rows if first <= label < first + 5]
            self.write(f"{name}.csv", "".join(",".join(row) + "\n" for row in chosen))
        low, high, scratch = (self.folder / name for name in ("run-low", "run-high", "run-scratch"))
        self.run_dltrain(self.configuration("low", "low_head"), "-q", "--output-dir", low)
        trained = low / "checkpoints" / "latest" / "model.safetensors"
        path = self.configuration("high", "high_head")
        self.refused(STORAGE, path, "-s", f"model.init_from={trained}", "--output-dir", high, says="strict: false")
        frozen = ("-s", "training.freeze=[trunk.*]", "--max-steps", 150)
        said = self.run_dltrain(path, "--output-dir", high, "-s", f"model.init_from={trained}", "-s", "model.strict=false", *frozen).err
        self.assertIn("not in the file: high_head.weight", said)
        self.assertIn("not in the model: low_head.weight", said)
        before, after = safetensors(trained), safetensors(high / "checkpoints" / "latest" / "model.safetensors")
        for name in ("trunk.weight", "trunk.bias"):
            self.assertEqual(before[name], after[name])
        # A trunk of random weights, as frozen, is worse.
        self.run_dltrain(path, "-q", "--output-dir", scratch, *frozen)
        found = {run: json.loads((run / "summary.json").read_text()) for run in (high, scratch)}
        self.assertGreater(found[high]["eval_accuracy"], 0.6)
        self.assertLess(found[high]["eval_loss"], found[scratch]["eval_loss"])


if __name__ == "__main__":
    support.main()
