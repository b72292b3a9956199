"""Texts with classes: training, evaluation and predictions of a classifier of BERT's form, from CSV and JSON Lines."""
import csv
import json
import random

from support import DATA, DltrainTest, main, metrics

CONFIG = """
name: topics
seed: 1
model: {{type: bert_classifier, num_layers: 1, hidden_size: 64, num_heads: 2, max_positions: 48, dropout: 0}}
data:
  type: text_classification
  path: {path}
  text: body
  label: topic
  tokenizer: {{type: byte, special_tokens: [<pad>, <s>, </s>]}}
  sequence_length: 48
  eval_fraction: 0.2
optimizer: {{type: adamw, learning_rate: 2.0e-3}}
training: {{global_batch_size: 16, num_epochs: 16}}
evaluation: {{eval_epochs: 4}}
logging: {{logging_steps: 1}}
"""
WORDS = {"sport": "goal team", "money": "bank euro", "weather": "rain wind"}


def texts(count, seed=1):
    draw = random.Random(seed)
    topics = draw.choices(list(WORDS), [5, 3, 2], k=count)
    return [(" ".join(draw.choice(f"{WORDS[topic]} the, of".split(" ")) for _ in range(draw.randint(1, 8))) + " " + WORDS[topic], topic) for topic in topics]


class TextClassification(DltrainTest):
    def table(self, name, rows, header=("body", "topic")):
        path = self.folder / name
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *rows])
        return path

    def train(self, name, *arguments):
        run = self.folder / name
        config = self.write("topics.yaml", CONFIG.format(path=self.table("texts.csv", texts(300))))
        self.run_dltrain(config, "-q", "--output-dir", run, *arguments)
        return run

    def predict(self, run, data, output="out.csv", *arguments):
        self.run_dltrain("predict", run, data, "-o", self.folder / output, *arguments)
        if output.endswith(".csv"):
            with open(self.folder / output, newline="", encoding="utf-8") as file:
                return list(csv.DictReader(file))
        return [json.loads(line) for line in (self.folder / output).read_text().splitlines()]

    def evaluate(self, run, data):
        self.run_dltrain("eval", run, data, "--result", self.folder / "eval.json")
        return json.loads((self.folder / "eval.json").read_text())

    def test_an_exported_folder_classifies_texts_as_its_run_does(self):
        run, folder = self.train("run", "-s", "training.num_epochs=2"), self.folder / "exported"
        self.run_dltrain("export", run, folder)
        table = self.table("new.csv", texts(20, seed=3))
        columns = ("-s", "data.text=body", "-s", "data.label=topic")
        own, exported = self.predict(run, table), self.predict(folder, table, "other.csv", *columns)
        self.assertEqual([row["class"] for row in own], [row["class"] for row in exported])
        losses = []
        for model, more in ((run, ()), (folder, columns)):
            self.run_dltrain("eval", model, table, "--result", self.folder / "eval.json", *more)
            losses.append(json.loads((self.folder / "eval.json").read_text())["eval_loss"])
        self.assertAlmostEqual(losses[0], losses[1], places=5)

    def test_from_a_table_to_predictions_by_name(self):
        run = self.train("run")
        evaluations = [line for line in metrics(run) if "eval_loss" in line]
        self.assertGreater(evaluations[-1]["eval_accuracy"], 0.9)
        self.assertGreater(evaluations[-1]["eval_f1_macro"], 0.9)
        self.assertEqual(evaluations[-1]["eval_samples"], 60)
        state = json.loads((run / "checkpoints" / "latest" / "state.json").read_text())
        self.assertEqual(state["class_names"], ["money", "sport", "weather"])
        # The training data is not needed. New data has its columns in any order, or none for the classes.
        (self.folder / "texts.csv").unlink()
        new = texts(40, seed=2)
        rows = self.predict(run, self.table("new.csv", [[text] for text, _ in new], ["body"]))
        self.assertEqual(list(rows[0]), ["sample", "source", "class", "probability"])
        right = sum(row["class"] == topic for row, (_, topic) in zip(rows, new, strict=True))
        self.assertGreater(right, 35)
        labelled = self.table("labelled.csv", [[topic, i, text] for i, (text, topic) in enumerate(new)], ["topic", "id", "body"])
        lines = self.write("labelled.jsonl", "".join(json.dumps({"topic": topic, "body": text}) + "\n" for text, topic in new))
        for data in (labelled, lines):
            self.assertAlmostEqual(self.evaluate(run, data)["eval_accuracy"], right / 40, delta=1e-9)
            found = self.predict(run, data, "out.jsonl")
            self.assertEqual([row["class"] for row in found], [row["class"] for row in rows])
            self.assertEqual([row["target"] for row in found], [topic for _, topic in new])
        self.run_dltrain("export", run, self.folder / "exported")
        config = json.loads((self.folder / "exported" / "config.json").read_text())
        self.assertEqual(config["id2label"], {"0": "money", "1": "sport", "2": "weather"})
        self.assertEqual(config["label2id"], {"money": 0, "sport": 1, "weather": 2})
        self.run_dltrain("import", self.folder / "exported", self.folder / "imported")
        more = self.table("input.csv", texts(40), ["text", "label"])
        self.run_dltrain(self.folder / "imported" / "config.yaml", "-q", "-s", f"data.path={more}", "-s", "data.eval_fraction=0.2",
                         "--output-dir", self.folder / "tuned")
        self.assertGreater(metrics(self.folder / "tuned")[-1]["eval_accuracy"], 0.8)
        # Padding has no effect.
        short = self.table("short.csv", [["goal"], ["the rain"]], ["body"])
        for long, cut in zip(self.predict(run, short), self.predict(run, short, "out.csv", "-s", "data.sequence_length=10"), strict=True):
            self.assertAlmostEqual(float(long["probability"]), float(cut["probability"]), delta=1e-5)
        # A few samples of one class are data too, unknown classes are not.
        self.assertEqual(self.evaluate(run, self.table("one.csv", [["rain", "weather"]]))["samples"], 1)
        unknown = self.table("unknown.csv", [["rain", "weather"], ["a vote", "politics"]])
        self.refused(DATA, "eval", run, unknown, says="unknown.csv:3: the class 'politics' is not one of the 3 trained classes: money, sport, weather")
        self.refused(DATA, "eval", run, self.folder / "new.csv", says="new.csv:1: the header has no column 'topic'; it has body")
        self.refused(DATA, "predict", run, self.table("empty.csv", [["a", 1], [" ", 2]], ["body", "id"]), "-o", self.folder / "no.csv", says="empty.csv:3: the text is empty")

    def test_a_resumed_run_continues_and_buckets_cut_padding_only(self):
        whole = self.train("whole")
        self.train("part", "--max-steps", 50, "-s", "training.num_epochs=null")
        part = self.train("part", "--resume", "auto")
        self.assert_same_state(whole, part)
        buckets = self.train("buckets", "-s", "data.length_buckets=4")
        self.assertLess(metrics(buckets)[-1]["tokens_seen"], 0.8 * metrics(whole)[-1]["tokens_seen"])
        # The same steps with and without padding.
        ordered = ("-s", "data.shuffle=false", "-s", "data.eval_split=random", "--max-steps", 1, "-s", "training.num_epochs=null")
        texts_by_length = sorted(texts(300), key=lambda row: len(row[0]))
        first = []
        for name, more in (("padded", ()), ("cut", ("-s", "data.length_buckets=8"))):
            run = self.folder / name
            config = self.write("sorted.yaml", CONFIG.format(path=self.table("sorted.csv", texts_by_length)))
            self.run_dltrain(config, "-q", "--output-dir", run, *ordered, *more)
            first.append(metrics(run)[0])
        self.assertAlmostEqual(first[0]["loss"], first[1]["loss"], delta=1e-5)
        self.assertAlmostEqual(first[0]["grad_norm"], first[1]["grad_norm"], delta=1e-4)
        self.assertLess(first[1]["tokens_seen"], first[0]["tokens_seen"])

    def test_one_class_is_refused_and_classes_are_counted_and_shown(self):
        config = self.write("topics.yaml", CONFIG.format(path=self.table("texts.csv", [(text, "sport") for text, _ in texts(40)])))
        self.refused(DATA, config, says="the data has one class only ('sport'); cross_entropy needs at least two classes")
        self.table("texts.csv", texts(40) + [("goal team", "sport"), ("goal team", "money")])
        shown = self.run_dltrain("data", "inspect", config).out
        for expected in ("classes: 3", "0 (money)", "of which 1 have another target"):
            self.assertIn(expected, shown)
        shown = self.run_dltrain("data", "show", config, "--samples", 3).out
        self.assertRegex(shown, r"^   0  (sport|money|weather)\n      <s>[a-z, ]+</s>(  \+ [0-9]+ of padding)?\n   1  ")


if __name__ == "__main__":
    main()
