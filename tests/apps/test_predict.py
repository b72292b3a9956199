"""Predictions as files and while a run goes on, and ensembles that average them."""
import csv
import json
import math
import shutil

import support
from support import DIVERGED, SMALL, STORAGE, USAGE

REGRESSION = SMALL.replace("loss: {type: cross_entropy}", "loss: {type: mse}").replace("out_features: 4", "out_features: 1")


def rows(path):
    if path.suffix == ".csv":
        with open(path, newline="") as file:
            return list(csv.DictReader(file))
    return [json.loads(line) for line in path.read_text().splitlines()]


class Predict(support.DltrainTest):
    def train(self, name, *arguments, text=SMALL):
        run = self.folder / name
        self.run_dltrain(self.small(text), "-q", "--output-dir", run, *arguments)
        return run

    def predict(self, output, *arguments, **options):
        path = self.folder / output
        self.run_dltrain("predict", "-o", path, *arguments, **options)
        return rows(path)

    def evaluate(self, *arguments):
        path = self.folder / "eval.json"
        self.run_dltrain("eval", "--result", path, *arguments)
        return json.loads(path.read_text())

    def test_outputs_that_are_not_finite_are_told(self):
        run = self.train("broken", "-s", "optimizer.learning_rate=1e30", "-s", "training.on_non_finite=skip")
        self.refused(DIVERGED, "eval", run, says="the loss is not finite")
        said = self.run_dltrain("predict", run, "-o", self.folder / "out.csv").err
        self.assertRegex(said, r"\d+ of 160 outputs of the model are not finite")

    def test_predictions_are_those_that_the_evaluation_measures(self):
        run = self.train("run")
        measured = self.evaluate("--checkpoint", run)
        found = self.predict("out.jsonl", "--checkpoint", run, "--top-k", 4)
        self.assertEqual([row["sample"] for row in found], list(range(40)))
        right = sum(row["class"] == row["target"] for row in found)
        self.assertAlmostEqual(right / 40, measured["eval_accuracy"], delta=1e-9)
        loss = 0
        for row in found:
            probabilities = {entry["class"]: entry["probability"] for entry in row["top"]}
            self.assertEqual(sorted(probabilities), [0, 1, 2, 3])
            self.assertAlmostEqual(sum(probabilities.values()), 1, delta=1e-5)
            self.assertEqual(row["probability"], max(probabilities.values()))
            loss -= math.log(probabilities[row["target"]])
        self.assertAlmostEqual(loss / 40, measured["eval_loss"], delta=1e-5)

    def test_csv_and_jsonl_say_the_same(self):
        run = self.train("run")
        lines = self.predict("out.csv", "--checkpoint", run, "--top-k", 2, "--samples", 7)
        self.assertEqual(list(lines[0]), ["sample", "source", "target", "class", "probability", "class_2", "probability_2"])
        objects = self.predict("out.jsonl", "--checkpoint", run, "--top-k", 2, "--samples", 7)
        self.assertEqual(len(lines), 7)
        for line, row in zip(lines, objects, strict=True):
            self.assertEqual((int(line["class"]), int(line["target"]), line["source"]), (row["class"], row["target"], row["source"]))
            self.assertEqual(float(line["probability"]), row["probability"])
            self.assertEqual(int(line["class_2"]), row["top"][1]["class"])

    def test_the_training_split_is_read_in_file_order_without_changes(self):
        run = self.train("run")
        found = self.predict("out.csv", "--checkpoint", run, "--split", "train")
        self.assertEqual(len(found), 100)
        again = self.predict("again.csv", "--checkpoint", run, "--split", "train", "-s", "seed=99")
        self.assertEqual(found, again)

    def test_latest_and_best_are_those_of_the_named_run(self):
        self.small(SMALL.replace("logging:", "evaluation: {eval_steps: 10}\nlogging:"))
        configuration = self.folder / "small.yaml"
        self.run_dltrain(configuration, "-q", cwd=self.folder)
        for link in ("latest", "best"):
            by_name = self.predict("a.csv", configuration, "--checkpoint", link, cwd=self.folder)
            by_path = self.predict("b.csv", "--checkpoint", self.folder / "runs" / "small" / "checkpoints" / link)
            self.assertEqual(by_name, by_path)
        self.refused(STORAGE, "predict", configuration, "--name", "other", "--checkpoint", "best", "-o", self.folder / "c.csv",
                     says="runs/other/checkpoints/best does not exist; runs contains small", cwd=self.folder)

    def test_an_ensemble_averages_probabilities(self):
        runs = [self.train(f"run{seed}", "--seed", seed, "--max-steps", 6) for seed in (1, 2, 3)]
        members = [self.predict(f"{i}.jsonl", "--checkpoint", run, "--top-k", 4) for i, run in enumerate(runs)]
        flags = [flag for run in runs for flag in ("--checkpoint", run)]
        ensemble = self.predict("ensemble.jsonl", *flags, "--top-k", 4)
        loss = right = 0
        for row, *singles in zip(ensemble, *members, strict=True):
            mean = [0.0] * 4
            for single in singles:
                for entry in single["top"]:
                    mean[entry["class"]] += entry["probability"] / 3
            for entry in row["top"]:
                self.assertAlmostEqual(entry["probability"], mean[entry["class"]], delta=1e-6)
            loss -= math.log(mean[row["target"]])
            right += row["class"] == row["target"]
        measured = self.evaluate(*flags)
        self.assertAlmostEqual(measured["eval_loss"], loss / 40, delta=1e-5)
        self.assertAlmostEqual(measured["eval_accuracy"], right / 40, delta=1e-9)
        # One model three times is that model.
        alone, thrice = self.evaluate("--checkpoint", runs[0]), self.evaluate(*["--checkpoint", runs[0]] * 3)
        self.assertAlmostEqual(alone["eval_loss"], thrice["eval_loss"], delta=1e-5)

    def test_regression_gives_the_outputs(self):
        data = self.write("data.csv", "".join(f"{i},{i % 5},{2 * i + i % 5}\n" for i in range(30)))
        text = REGRESSION.replace("type: synthetic, shape: [12], classes: 4, samples: 100, shuffle: true", f"type: csv, path: {data}, task: regression")
        text = text.replace("type: synthetic, shape: [12], classes: 4, samples: 40, seed: 1", f"type: csv, path: {data}, task: regression")
        run = self.train("run", text=text)
        found = self.predict("out.csv", "--checkpoint", run)
        self.assertEqual(list(found[0]), ["sample", "source", "target", "output"])
        error = sum((float(row["output"]) - float(row["target"])) ** 2 for row in found) / 30
        self.assertAlmostEqual(error / self.evaluate("--checkpoint", run)["eval_loss"], 1, delta=1e-5)
        self.assertEqual(self.predict("out.jsonl", "--checkpoint", run)[3]["target"], 2 * 3 + 3)

    def test_one_logit_gives_class_and_target_by_name(self):
        lines = [f"{i % 7},{'yes' if i % 7 > 3 else 'no'}\n" for i in range(60)]
        data = f"data: {{type: csv, path: {self.write('answers.csv', 'a,y' + chr(10) + ''.join(lines))}, eval_fraction: 0.2}}\n"
        text = SMALL.split("loss:")[0].replace("out_features: 4", "out_features: 1") + "loss: binary_cross_entropy\n" + data + "optimizer:" + SMALL.split("optimizer:")[1]
        run = self.train("run", text=text)
        found = self.predict("out.csv", run, "--top-k", 2)
        self.assertEqual(list(found[0]), ["sample", "source", "target", "class", "probability", "class_2", "probability_2"])
        for row in found:
            self.assertEqual({row["class"], row["class_2"], row["target"]}, {"yes", "no"})
            self.assertAlmostEqual(float(row["probability"]) + float(row["probability_2"]), 1, delta=1e-6)
            self.assertGreaterEqual(float(row["probability"]), 0.5)
        measured = self.evaluate("--checkpoint", run)
        self.assertAlmostEqual(sum(row["class"] == row["target"] for row in found) / len(found), measured["eval_accuracy"], delta=1e-9)
        of_target = [float(row["probability" if row["class"] == row["target"] else "probability_2"]) for row in found]
        self.assertAlmostEqual(-sum(map(math.log, of_target)) / len(found), measured["eval_loss"], delta=1e-5)
        objects = self.predict("out.jsonl", run)
        self.assertEqual([(row["target"], row["class"]) for row in objects], [(row["target"], row["class"]) for row in found])
        # New data needs no targets.
        new = self.predict("named.csv", run, self.write("new.csv", "a\n1\n6\n"))
        self.assertEqual([row["class"] for row in new], ["no", "yes"])
        self.refused(USAGE, "predict", run, "--top-k", 3, "-o", self.folder / "no.csv", says="--top-k 3: the model has 2 classes")

    def test_predictions_are_written_while_the_run_goes_on(self):
        run = self.train("run", "-s", "evaluation={eval_steps: 10, predictions: 5}")
        plain = self.train("plain", "-s", "evaluation={eval_steps: 10}")
        self.assert_same_state(run, plain)
        files = sorted(path.name for path in (run / "predictions").iterdir())
        self.assertEqual(files, [f"step-{step:06}.jsonl" for step in (10, 20, 30, 40)])
        at_end = self.predict("out.jsonl", "--checkpoint", run, "--samples", 5)
        self.assertEqual(rows(run / "predictions" / files[-1]), at_end)

    def table(self, **keys):
        rows = [f"{i % 7},{i % 5},{i % 7 > 3:d}" for i in range(60)]
        text = SMALL.split("data:")[0] + f"data: {{type: csv, path: {self.write('table.csv', chr(10).join(rows))}, {keys.pop('data')}}}\n"
        text += "optimizer:" + SMALL.split("optimizer:")[1]
        # Further keys of a run with evaluations.
        more = ("evaluation={eval_steps: 20, samples: 4, predictions: 2}", "checkpoint.metric=accuracy", "training.early_stopping=5")
        flags = [flag for key in more if "eval" in text.split("data:")[1].split("\n")[0] for flag in ("-s", key)]
        return self.train("table", *flags, text=text), self.write("new.csv", "\n".join(rows[:9]))

    def test_a_new_table_needs_nothing_but_the_run_whatever_its_split_was(self):
        for keys in ("eval_fraction: 0.2", "train: {rows: [0, 40]}, eval: {rows: [40, 60]}", "classes: 4", "sampling: balanced"):
            run, new = self.table(data=keys)
            (self.folder / "table.csv").unlink()
            found = self.predict("out.csv", run, new)
            self.assertEqual([row["target"] for row in found], ["0", "0", "0", "0", "1", "1", "1", "0", "0"])
            self.assertTrue(all(row["source"].startswith(str(new)) for row in found), found)
            right = sum(row["class"] == row["target"] for row in found)
            result = self.folder / "eval.json"
            said = self.run_dltrain("eval", run, new, "--result", result).out
            self.assertIn(f"9 samples of {new}, loss", said)
            self.assertAlmostEqual(json.loads(result.read_text())["eval_accuracy"], right / 9, delta=1e-9)
            both = self.predict("both.csv", "--checkpoint", run, "--checkpoint", run, new)
            self.assertEqual([row["class"] for row in both], [row["class"] for row in found])
            shutil.rmtree(run)

    def test_held_out_samples_of_changed_data_are_no_longer_held_out(self):
        run, new = self.table(data="eval_fraction: 0.2")
        warning = "the data is not that with which"
        for command in (("eval", run), ("predict", run, "-o", self.folder / "out.csv")):
            self.assertNotIn(warning, self.run_dltrain(*command).err)
            self.assertIn(warning, self.run_dltrain(*command, "-s", "data.split_seed=3").err)
        self.assertIn(f"4 samples of {new}", self.run_dltrain("eval", run, new, "-s", "evaluation.samples=4").out)
        with open(self.folder / "table.csv", "a") as table:
            table.write("\n1,2,0\n3,4,0\n")
        self.assertIn(warning, self.run_dltrain("eval", run).err)
        self.assertNotIn(warning, self.run_dltrain("eval", run, new).err)

    def test_another_seed_draws_no_other_base(self):
        run = self.train("run", "-s", "model.lora={rank: 2, save: adapters}")
        self.assertEqual(self.evaluate(run, "--seed", 8), self.evaluate(run))

    def test_classes_that_the_loss_weighs_ask_for_no_training_data(self):
        run, new = self.table(data="eval_fraction: 0.2")
        shutil.rmtree(run)
        self.run_dltrain(self.folder / "small.yaml", "-q", "--output-dir", run, "-s", "loss.balanced_class_weights=true", "-s",
                         "model.final_bias_from_data=true")
        self.assertEqual(len(self.predict("out.csv", run, new)), 9)
        # An ensemble weighs them too.
        alone, twice = self.evaluate("--checkpoint", run), self.evaluate(*["--checkpoint", run] * 2)
        self.assertAlmostEqual(alone["eval_loss"], twice["eval_loss"], delta=1e-5)

    def test_what_cannot_be_predicted_is_refused(self):
        run = self.train("run")
        self.refused(USAGE, "predict", "--checkpoint", run, "-o", self.folder / "out.txt", says=".csv or .jsonl")
        self.refused(USAGE, "predict", "--checkpoint", run, says="--output")
        result = self.refused(STORAGE, "predict", "--checkpoint", run, "-o", self.folder / "none" / "o.csv",
                              says=["none/o.csv: cannot create: there is no folder ", "/none\n"])
        self.assertNotIn(".tmp-", result.err)
        self.refused(USAGE, "predict", "--checkpoint", run, "-o", self.folder / "o.csv", "-s", "data.eval=null", says="no eval split")
        self.refused(USAGE, "predict", run, self.small(), "-o", self.folder / "o.csv", "-s", "data.eval=null", says="no eval split")
        self.refused(USAGE, "predict", self.write("new.csv", "1,2\n"), "-o", self.folder / "o.csv", says=f"no model is given before {self.folder}/new.csv: name a run folder")
        self.refused(USAGE, "eval", says="no model is given: name a run folder")
        self.refused(USAGE, "predict", run, self.write("new.csv", "1,2\n"), "-o", self.folder / "o.csv", says="synthetic samples")
        self.refused(STORAGE, "predict", self.small(), "--checkpoint", self.folder, "-o", self.folder / "o.csv", says="contains no checkpoint")
        environment = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        self.refused(USAGE, "predict", "--checkpoint", run, "-o", self.folder / "o.csv", says="one rank", env=environment)
        other = self.train("other", text=SMALL.replace("out_features: 4", "out_features: 5"))
        self.refused(USAGE, "predict", "--checkpoint", run, "--checkpoint", other, "-o", self.folder / "o.csv",
                     says="an ensemble needs predictions of the same kind")


if __name__ == "__main__":
    support.main()
