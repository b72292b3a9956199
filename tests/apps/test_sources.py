"""Several sources of data: mixed in training by weights, measured one by one in evaluation."""
import json

from support import DATA, OK, STOPPED, USAGE, DltrainTest, main, metrics, steps

CONFIG = """
name: sources
seed: 3
model: {layers: [{embedding: {embedding_dim: 8}}, {linear: auto}]}
data:
  type: text
  tokenizer: char
  sequence_length: 16
  eval_fraction: 0.1
  train:
    sources:
      - {name: prose, path: prose.txt, weight: 0.7}
      - {name: code, path: [code.txt, more.txt], weight: 0.3}
optimizer: {type: adamw, learning_rate: 1.0e-2}
training: {global_batch_size: 8, max_steps: 40}
logging: {logging_steps: 1}
evaluation: {eval_steps: 20}
"""


class SourcesTest(DltrainTest):
    def setUp(self):
        super().setUp()
        self.write("prose.txt", "".join(f"line {i} of the text, {i * i} squared\n" for i in range(600)))
        self.write("code.txt", "".join(f"for (int i = 0; i < {i}; ++i) sum += i;\n" for i in range(60)))
        self.write("more.txt", "".join(f"while (n > {i}) n /= 2;\n" for i in range(90)))
        self.config = self.write("exp.yaml", CONFIG)

    def train(self, name, *more, code=OK):
        run = self.folder / name
        self.run_dltrain(self.config, "--output-dir", run, "--quiet", *more, code=code)
        return run

    def test_a_run_with_sources_of_its_own_for_evaluation_is_read_again(self):
        text = self.write("own.yaml", CONFIG.replace("  eval_fraction: 0.1\n", "").replace(
            "optimizer:", "  eval: {sources: [{name: prose, path: prose.txt}, {name: code, path: code.txt}]}\noptimizer:"))
        run = self.folder / "own"
        self.run_dltrain(text, "-q", "--output-dir", run, "--max-steps", 10, "-s", "lr_scheduler={type: wsd, decay_steps: 4}")
        self.assertIn("loss", self.run_dltrain("eval", run).out)
        self.run_dltrain("train", "--resume", run, "-q", "--max-steps", 12)

    def test_sources_are_mixed_by_weight_and_measured_one_by_one(self):
        plan = self.run_dltrain("plan", self.config).out
        self.assertIn("source prose: 224 of the samples (70 %)", plan)
        run = self.train("run")
        last = steps(run)[-1]
        sizes = [224 / last["prose_epochs"], 96 / last["code_epochs"]]
        evaluated = [line for line in metrics(run) if "eval_loss" in line][-1]
        self.assertGreater(evaluated["eval_code_loss"], evaluated["eval_prose_loss"])
        self.assertAlmostEqual(sum(sizes), 40 * 8 / last["epoch"], places=2)
        # Each source by itself, as its own eval data with the run's tokenizer.
        single = {}
        for name, path in {"prose": "prose.txt", "code": "{code.txt,more.txt}"}.items():
            text = "".join((self.folder / part).read_text() for part in path.strip("{}").split(","))
            held = self.write(name + ".held", text[len(text) - round(len(text) * 0.1):])
            result = self.folder / "result.json"
            self.run_dltrain("eval", run, held, "--result", result)
            single[name] = json.loads(result.read_text())
            for key in ("loss", "accuracy", "perplexity", "bits_per_byte"):
                self.assertAlmostEqual(single[name]["eval_" + key], evaluated[f"eval_{name}_{key}"], places=5)
        counts = [single[name]["samples"] for name in ("prose", "code")]
        self.assertEqual(sum(counts), evaluated["eval_samples"])
        mean = sum(n * single[name]["eval_loss"] for n, name in zip(counts, ("prose", "code"))) / sum(counts)
        self.assertAlmostEqual(evaluated["eval_loss"], mean, places=5)
        # One byte a character: bits per byte are the loss in bits.
        self.assertAlmostEqual(evaluated["eval_bits_per_byte"], evaluated["eval_loss"] / 0.6931471805599453, places=5)
        log = (run / "log.txt").read_text()
        self.assertIn("step 40: code: loss", log)

    def test_the_training_losses_of_sources_add_up_to_the_loss(self):
        def losses(name, *settings):
            run = self.train(name, *(part for setting in settings for part in ("-s", setting)))
            return [(line["loss"], line.get("prose_loss"), line.get("code_loss")) for line in steps(run)]

        whole = losses("whole")
        drawn = [0, 0]
        for step, (loss, prose, code) in enumerate(whole):
            # Of 8 samples of a step 70 % are prose, to within about one.
            n = round(0.7 * 8 * (step + 1)) - drawn[0]
            near = min((abs(loss - (m * prose + (8 - m) * code) / 8), m) for m in (n - 1, n, n + 1))
            self.assertLess(near[0], 1e-6)
            drawn[0] += near[1]
        self.assertGreater(whole[-1][2], whole[-1][1])
        one = losses("one", f"data.train={{sources: [{{name: prose, path: {self.folder}/prose.txt}}]}}")
        self.assertEqual({prose for _, prose, _ in one}, {None})  # it would be the loss
        self.refused(USAGE, self.config, "--dry-run", "-s", "data.train.sources[0].name=eval", says="eval_loss is the loss of evaluations")
        self.assertEqual(losses("micro", "training.micro_batch_size=2")[0][0], whole[0][0])
        for name, settings in (("micro-2", ["training.micro_batch_size=2"]), ("smoothed", ["loss.label_smoothing=0.1"]), ("curriculum", ["data.curriculum={from: 4, steps: 20, stages: 2}"])):
            for loss, prose, code in losses(name, *settings):
                self.assertLess(min(abs(loss - (m * prose + (8 - m) * code) / 8) for m in range(9)), 1e-6)

    def test_the_training_losses_of_sources_are_those_of_one_rank_in_every_layout(self):
        model = ("{layers: [{embedding: {embedding_dim: 8}}, {linear: 24}, {attention: {num_heads: 2, causal: true}}, {linear: {out_features: 8, name: last}}, {linear: auto}]}")
        one = steps(self.train("one", "-s", f"model={model}", "-s", "training.micro_batch_size=2", "--max-steps", 6))
        for name, ranks, *settings in (("data", 2), ("zero", 2, "parallelism.zero_stage=2"), ("tensor", 2, "parallelism.tensor=2"), ("context", 2, "parallelism.context=2"),
                                       ("sequence", 2, "parallelism.tensor=2", "parallelism.sequence_parallel=true"), ("pipeline", 2, "parallelism={pipeline: 2, pipeline_stages: [last]}")):
            run = self.train(name, "-s", f"model={model}", "-s", "training.micro_batch_size=2", "--max-steps", 6, "--nproc-per-node", ranks,
                             *(part for setting in settings for part in ("-s", setting)))
            for expected, found in zip(one, steps(run), strict=True):
                for key in ("loss", "prose_loss", "code_loss"):
                    self.assertAlmostEqual(expected[key], found[key], places=4, msg=f"{name} {key}")

    def test_the_order_does_not_depend_on_the_layout_and_resumes(self):
        whole = [line["loss"] for line in steps(self.train("whole"))]
        run = self.train("run", "--stop-at", 13, code=STOPPED)
        self.run_dltrain(self.config, "--output-dir", run, "--resume", "auto", "--quiet")
        self.assertEqual([line["loss"] for line in steps(run)], whole)
        ranks = self.folder / "ranks"
        self.train("ranks", "--nproc-per-node", 2)
        for one, two in zip(whole, steps(ranks), strict=True):
            self.assertAlmostEqual(one, two["loss"], places=5)
        evaluated = [[line for line in metrics(folder) if "eval_loss" in line][-1] for folder in (run, ranks)]
        self.assertAlmostEqual(evaluated[0]["eval_code_bits_per_byte"], evaluated[1]["eval_code_bits_per_byte"], places=5)
        self.refused(USAGE, self.config, "--output-dir", run, "--resume", "auto", "--max-steps", 50, "-s",
                     "data.train.sources[0].weight=2", says="weight")
        changed = self.run_dltrain(self.config, "--output-dir", run, "--resume", "auto", "-q", "--max-steps", 41, "--allow-changes", "-s", "data.train.sources[0].weight=2")
        self.assertIn("each source continues at the position that the new mixture has after 320 samples", changed.err)

    def test_prepared_tokens_and_sets_for_evaluation(self):
        def prepare(tokenizer):
            for name in ("prose", "code"):
                text = CONFIG.replace(CONFIG[CONFIG.index("  train:"):CONFIG.index("optimizer")], f"  path: {name}.txt\n")
                config = self.write("prepare.yaml", text.replace("char", tokenizer))
                self.run_dltrain("data", "prepare", config, "-o", self.folder / name, "--overwrite")

        self.refused(USAGE, "data", "prepare", self.config, "-o", self.folder / "all", says="takes `path`")
        self.assertFalse((self.folder / "all").exists())
        self.write("exp.yaml", """
model: {layers: [{embedding: {embedding_dim: 8}}, {linear: auto}]}
data:
  type: tokens
  sequence_length: 16
  train: {sources: [{name: prose, path: prose/train_*.bin, max_epochs: 0.1}, {name: code, path: code/train_*.bin}]}
  eval: {sources: [{name: prose, path: prose/eval_*.bin}, {name: code, path: code/eval_*.bin}]}
optimizer: {type: adamw, learning_rate: 1.0e-2}
training: {global_batch_size: 8, max_steps: 30}
evaluation: {eval_steps: 30, metrics: bits_per_byte}
checkpoint: {save_steps: 30, metric: code_bits_per_byte}
""")
        prepare("char")
        self.refused(DATA, self.config, "--dry-run", says="the sources 'prose' and 'code' have different tokenizers")
        prepare("byte")
        run = self.train("run")
        self.assertAlmostEqual(steps(run)[-1]["prose_epochs"], 0.1, delta=0.01)
        self.assertIn("eval_code_bits_per_byte", metrics(run)[-1])
        self.assertTrue((run / "checkpoints" / "best").exists())

    def test_mistakes(self):
        def refused(*settings, says, code=USAGE):
            changed = [part for setting in settings for part in ("-s", setting)]
            self.refused(code, self.config, "--dry-run", *changed, says=says)

        first, second = "data.train.sources[0]", "data.train.sources[1]"
        refused(f"{second}.name=prose", says="two sources are named 'prose'")
        refused(f"{second}.name='a b'", says="letters, digits")
        refused(f"{second}.weight=null", says="give a weight to all sources or to none")
        refused("data.train.path=prose.txt", says="path or sources")
        refused("data.train.sampling=streams", says="sources need `sampling: uniform`")
        refused(f"{second}.path=nothing.txt", says="nothing.txt", code=DATA)
        refused(f"{first}.max_epochs=0.01", f"{second}.max_epochs=0.5", says="set training.max_steps to at most")
        refused(f"{first}.wieght=1", says="weight")
        refused("data={train: {type: csv, sources: []}}", says="sources")
        refused("data.eval_fraction=null", "data.eval={sources: [{name: prose, path: prose.txt, weight: 1}]}",
                says="move weight to data.train")
        refused("evaluation.metrics=bits_per_byte", "data.mlm_probability=0.2", "data.tokenizer.special_tokens=[<mask>]",
                says="bits_per_byte needs")


main()
