"""Which checkpoint is used, whether it is whole, and what a run that goes on may change."""
import json
import os
import shutil
import signal
import time

import support
from support import OK, SMALL, STOPPED, STORAGE, USAGE, checkpoints, metrics, steps

CONSTANT = SMALL.replace("type: cosine", "type: constant")
GPT = """
name: gpt
model: {type: gpt2, num_layers: 1, hidden_size: 8, num_heads: 2, max_positions: 16, dropout: 0}
data: {type: text, path: PATH, tokenizer: {type: char}, sequence_length: 16}
optimizer: {type: adamw, learning_rate: 1.0e-2}
training: {global_batch_size: 8, max_steps: 6}
checkpoint: {save_steps: 3}
logging: {logging_steps: 1}
"""


def flip(file, at=-5):
    content = bytearray(file.read_bytes())
    content[at] ^= 0x10
    file.write_bytes(content)


class Runs(support.DltrainTest):
    def setUp(self):
        super().setUp()
        self.run_folder = self.folder / "runs" / "small"

    def train(self, *arguments, text=CONSTANT, run=None, code=OK):
        return self.run_dltrain(self.small(text), "-q", "--output-dir", run or self.run_folder, *arguments, code=code)

    def go_on(self, *arguments, **how):
        return self.train("--resume", "auto", *arguments, **how)

    def gpt(self):
        text = self.write("text.txt", "the cat sat on the mat and that was that. " * 20)
        self.run_dltrain(self.write("gpt.yaml", GPT.replace("PATH", str(text))), "-q", "--output-dir", self.folder / "gpt")
        return self.folder / "gpt"


class Damage(Runs):
    def test_only_resume_auto_takes_an_older_checkpoint_in_the_place_of_a_damaged_one(self):
        self.train()
        newest, whole = (self.run_folder / "checkpoints" / name for name in ("step-000040", "step-000030"))
        flip(newest / "model.safetensors")
        other = self.folder / "other"
        says = [f"{newest}/model.safetensors: damaged", f"the newest valid checkpoint is {whole}"]
        for place in (self.run_folder, newest, newest.parent, newest.parent / "latest"):
            for command in (("eval", "--checkpoint", place), ("predict", "--checkpoint", place, "-o", f"{other}.csv"), ("export", place, self.folder / "exported"),
                            ("generate", place, "--tokens", "1"),
                            (self.small(), "--output-dir", other, "-s", f"model.init_from={place}"),
                            (self.small(), "--output-dir", other, "-s", f"loss={{type: distillation, teacher: {place}}}"),
                            (self.small(), "--output-dir", other, "--resume", place)):
                self.refused(STORAGE, *command, says=says)
        self.refused(STORAGE, self.small(), "--output-dir", other, "-s", f"model.init_from={newest / 'model.safetensors'}", says=says)
        self.assertFalse((other / "checkpoints").exists())
        self.run_dltrain("eval", "--checkpoint", whole)
        self.assertIn("skipped", self.go_on().err)

    def test_ranks_that_share_a_checkpoint_all_learn_of_its_damage(self):
        ranks = ("--nproc-per-node", 2, "-s", "parallelism.zero_stage=3")
        self.train(*ranks, "-s", "data.eval=null")
        newest, whole = (self.run_folder / "checkpoints" / name for name in ("step-000040", "step-000030"))
        expected = json.loads((newest / "state.json").read_text())
        for part in sorted(newest.glob("*.safetensors")):
            flip(part)
            self.refused(STORAGE, self.small(CONSTANT), "--output-dir", self.folder / "other", "--resume", newest, *ranks, "-s", "data.eval=null",
                         says=[f"{part}: damaged", f"the newest valid checkpoint is {whole}"])
            flip(part)
        with open(newest / "optimizer-00002-of-00002.safetensors", "r+b") as file:
            file.truncate(100)
        said = self.go_on(*ranks, "-s", "data.eval=null").err
        self.assertIn("optimizer-00002-of-00002.safetensors: damaged: 100 bytes", said)
        again = json.loads((newest / "state.json").read_text())
        self.assertEqual((again["step"], again["samples_seen"], again["cursors"]), (40, 640, {"train": 640}))
        self.assertEqual(again["cursors"], expected["cursors"])

    def test_a_list_of_checksums_that_has_lost_a_file_is_refused(self):
        self.train()
        checkpoint = self.run_folder / "checkpoints" / "step-000040"
        whole = (checkpoint / "checksums.json").read_text()
        for name in sorted(json.loads(whole)["files"]):
            for lost in (False, True):
                listed = json.loads(whole)
                del listed["files"][name]
                (checkpoint / "checksums.json").write_text(json.dumps(listed))
                if lost:
                    (checkpoint / name).rename(self.folder / name)
                result = self.refused(STORAGE, "eval", "--checkpoint", checkpoint)
                if lost:
                    (self.folder / name).rename(checkpoint / name)
                else:
                    self.assertIn(f"does not list {name}", result.err)

    def test_a_tokenizer_that_is_not_the_trained_one_is_refused(self):
        gpt = self.gpt()
        before = (gpt / "tokenizer.json").read_text()
        about = json.loads(before)
        about["alphabet"] = about["alphabet"][::-1]
        text = self.write("new.txt", "the mat and the cat and that. " * 20)
        folder = self.folder / "folder"
        self.run_dltrain("export", gpt, folder)
        self.run_dltrain("eval", folder, text)
        swapped = (folder / "tokenizer.json").read_text().replace('"t"', '"TEMPORARY"').replace('"e"', '"t"').replace('"TEMPORARY"', '"e"')
        (folder / "tokenizer.json").write_text(swapped)
        self.refused(STORAGE, "eval", folder, text, says="tokenizer.json")
        for damaged in (json.dumps(about), before[:20], ""):
            (gpt / "tokenizer.json").write_text(damaged)
            for command in (("generate", gpt, "--prompt", "the"), ("export", gpt, self.folder / "out"), ("eval", gpt, text),
                            ("predict", gpt, text, "-o", self.folder / "predicted.csv"),
                            (self.folder / "gpt.yaml", "--output-dir", gpt, "--resume", "auto", "--max-steps", 9)):
                self.refused(STORAGE, *command, says=["tokenizer", "damaged or was replaced"])
        (gpt / "tokenizer.json").unlink()
        for command in (("generate", gpt, "--prompt", "the"), ("export", gpt, self.folder / "out")):
            self.refused(STORAGE, *command, says="the tokenizer it was trained with is not in")
        # Training makes the same tokenizer again.
        self.run_dltrain(self.folder / "gpt.yaml", "-q", "--output-dir", gpt, "--resume", "auto", "--max-steps", 9)
        self.assertEqual((gpt / "tokenizer.json").read_text(), before)
        self.run_dltrain("generate", gpt, "--prompt", "the", "--max-tokens", 2)

    def test_eval_of_a_run_that_saves_reads_what_latest_names(self):
        process = self.start(self.small(), "-q", "--output-dir", self.run_folder, "--max-steps", 1_000_000, "-s", "checkpoint.save_steps=5",
                             "-s", "checkpoint.save_total_limit=1", "-s", "logging.logging_steps=1000", "-s", "lr_scheduler.type=constant")
        latest = self.run_folder / "checkpoints" / "latest"
        self.wait_for(latest.exists, "the first checkpoint")
        for _ in range(8):
            before = int(os.readlink(latest)[5:])
            read = self.run_dltrain("eval", "--checkpoint", self.run_folder).out
            self.assertGreaterEqual(int(read.split(":")[0][-6:]), before)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.end(process).code, STOPPED)

    def test_a_place_without_a_checkpoint_is_told_with_what_there_is(self):
        self.train()
        runs = self.folder / "runs"
        for command in (("--resume",), ("eval", "--checkpoint")):
            self.refused(STORAGE, *command, "runs/nothere", cwd=self.folder, says=["runs/nothere does not exist", "runs contains small (step 40)"])
            self.refused(STORAGE, *command, "runs/smell", cwd=self.folder, says="runs contains small (step 40); did you mean runs/small?")
            self.refused(STORAGE, *command, "runs", cwd=self.folder, says=["runs contains no checkpoint", "runs contains small (step 40)"])
            self.refused(STORAGE, *command, "nothere", cwd=self.folder, says="runs contains small (step 40)")
            self.refused(STORAGE, *command, self.run_folder / "checkpoints" / "step-000015",
                         says=f"{self.run_folder}/checkpoints contains step-000020 (step 20), step-000030")
        self.assertEqual(os.listdir(runs), ["small"])


class Changes(Runs):
    def test_a_checkpoint_is_named_from_within_its_run(self):
        run, text = self.gpt(), self.folder / "text.txt"
        folder = run / "checkpoints"
        for place, name in ((folder, "./latest"), (folder / "step-000003", "../step-000006"), (folder / "latest", ".")):
            self.run_dltrain("eval", name, text, cwd=place)
        self.run_dltrain("-q", "--resume", "./latest", "--max-steps", 8, cwd=folder)
        self.assertEqual(steps(run)[-1]["step"], 8)
        self.assertFalse((folder / "checkpoints").exists())

    def test_what_changed_since_the_checkpoint_is_told_and_both_configurations_stay(self):
        self.train("--max-steps", 20, "-s", "optimizer.learning_rate=5e-2")
        before = (self.run_folder / "config.yaml").read_text()
        said = self.go_on("-s", "optimizer.weight_decay=0.5").err
        self.assertIn("settings changed from step 20 on (config.until-step-000020.yaml has the earlier ones)", said)
        self.assertIn("  optimizer.learning_rate: 0.05 -> 0.01\n", said)
        self.assertIn("  optimizer.weight_decay: 0.01 -> 0.5\n", said)
        self.assertEqual((self.run_folder / "config.until-step-000020.yaml").read_text(), before)
        self.assertIn("learning_rate: 0.01", (self.run_folder / "config.yaml").read_text())
        self.assertEqual([line["learning_rate"] for line in steps(self.run_folder)][19:21], [0.05, 0.01])
        # More steps are no reason for a warning.
        self.assertEqual(self.go_on("-s", "optimizer.weight_decay=0.5", "--max-steps", 44).err, "")

    def test_another_model_loss_or_data_is_refused_unless_it_is_allowed(self):
        self.train("--max-steps", 10)
        for change, says in (("loss.label_smoothing=0.1", "loss.label_smoothing: 0.0 -> 0.1"), ("model.layers[2].rate=0.3", "model.layers[2].rate: 0.2 -> 0.3"),
                             ("data.train.noise=2", "data.train.noise: 1.0 -> 2.0"), ("data.train.samples=90", "samples of data.train: 100 -> 90")):
            result = self.refused(USAGE, self.small(CONSTANT), "--output-dir", self.run_folder, "--resume", "auto", "-s", change,
                                  says=[says, "--allow-changes"])
            self.assertEqual(checkpoints(self.run_folder), ["step-000010"], str(result))
        said = self.go_on("-s", "loss.label_smoothing=0.1", "--allow-changes").err
        self.assertIn("loss.label_smoothing: 0.0 -> 0.1", said)
        self.assertNotIn("other data", said)
        self.assertEqual(len(steps(self.run_folder)), 40)

    def test_the_batch_may_change_and_the_data_continues_at_the_next_sample(self):
        self.train("--max-steps", 10)
        change = ("-s", "training.global_batch_size=32", "--max-steps", 20)
        self.refused(USAGE, self.small(CONSTANT), "--output-dir", self.run_folder, "--resume", "auto", *change,
                     says=["training.global_batch_size: 16 -> 32", "--allow-changes"])
        self.go_on(*change, "--allow-changes")
        lines = steps(self.run_folder)
        self.assertEqual([line["samples_seen"] for line in lines], [16 * step for step in range(1, 11)] + [160 + 32 * step for step in range(1, 11)])
        for line in lines:
            self.assertAlmostEqual(line["epoch"], line["samples_seen"] / 100)
        state = json.loads((self.run_folder / "checkpoints" / "latest" / "state.json").read_text())
        self.assertEqual((state["format"], state["samples_seen"], state["cursors"]), (3, 480, {"train": 480}))
        # The rest of the epochs, in batches of 50.
        epochs = ("-s", "training.max_steps=null", "-s", "training.num_epochs=6", "-s", "training.global_batch_size=50", "--allow-changes")
        self.go_on(*epochs)
        self.assertEqual([line["samples_seen"] for line in steps(self.run_folder)][20:], [530, 580, 630])

    def test_the_batch_stays_where_the_order_of_the_data_depends_on_it(self):
        self.train("--max-steps", 10)
        text = self.write("text.txt", "the cat sat on the mat and that was that. " * 20)
        streams = self.write("streams.yaml", GPT.replace("PATH", str(text)).replace("sequence_length: 16}", "sequence_length: 16, sampling: streams}"))
        run = self.folder / "streams"
        self.run_dltrain(streams, "-q", "--output-dir", run)
        self.refused(USAGE, streams, "--output-dir", run, "--resume", "auto", "--max-steps", 9, "--allow-changes", "-s", "training.global_batch_size=4",
                     says=["48 samples in 6 steps", "sampling: streams needs batches of the same size"])

    def test_data_may_move_but_not_become_other_data(self):
        text = CONSTANT.replace("type: synthetic, shape: [12], classes: 4, samples: 100, shuffle: true", "type: csv, path: PATH")
        text = text.replace("  eval: {type: synthetic, shape: [12], classes: 4, samples: 40, seed: 1}\n", "")
        rows = [f"{i % 7},{i % 5},{i % 4}\n" for i in range(60)]
        for name, content in (("a", rows), ("b it's", rows), ("c", rows[::-1])):
            self.write(f"{name}/data.csv", "".join(content))
        self.train("--max-steps", 10, text=text.replace("PATH", str(self.folder / "a" / "data.csv")))
        self.refused(USAGE, self.small(text.replace("PATH", str(self.folder / "c" / "data.csv"))), "--output-dir", self.run_folder, "--resume",
                     "auto", says="data.train.path")
        shutil.rmtree(self.folder / "a")
        said = self.go_on(text=text.replace("PATH", f'"{self.folder}/b it\'s/data.csv"')).err
        self.assertIn("data.train.path: ", said)
        self.assertEqual(len(steps(self.run_folder)), 40)

    def test_another_layout_of_the_optimizers_state_names_the_changed_key(self):
        adamw = "type: adamw, learning_rate: 1.0e-2, weight_decay: 0.01"
        for before, after, says in (("", f"optimizer={{{adamw}, moments: 8bit, min_8bit_size: 1}}", 'optimizer.moments: f32 -> "8bit"'),
                                    ("training.freeze=['layers.0.*']", "training.freeze=[]", "training.freeze[0]: layers.0.* -> absent"),
                                    (f"optimizer={{{adamw}, galore: {{rank: 2}}}}", f"optimizer={{{adamw}, galore: {{rank: 3}}}}", "optimizer.galore.rank: 2 -> 3")):
            self.train("--max-steps", 10, "--overwrite", *(("-s", before) if before else ()))
            self.refused(USAGE, self.small(CONSTANT), "--output-dir", self.run_folder, "--resume", "auto", "--allow-changes", "-s", after,
                         says=[says, f"model.init_from: {self.run_folder}"])

    def test_other_data_under_the_same_path_is_refused(self):
        text = CONSTANT.replace("type: synthetic, shape: [12], classes: 4, samples: 100, shuffle: true", "type: csv, path: PATH")
        text = text.replace("  eval: {type: synthetic, shape: [12], classes: 4, samples: 40, seed: 1}\n", "")
        rows = [f"{i % 7},{i % 5},{i % 4}\n" for i in range(60)]
        swapped = [row[:-2] + str(3 - int(row[-2])) + "\n" for row in rows]
        data = self.write("data.csv", "".join(rows))
        text = text.replace("PATH", str(data))
        self.train("--max-steps", 10, text=text)
        for content, says in ((rows[::-1], "hash of some inputs of data.train: "), (swapped, "hash of some targets of data.train: ")):
            data.write_text("".join(content))
            for flags in ((), ("--dry-run",)):
                self.refused(USAGE, self.small(text), "--output-dir", self.run_folder, "--resume", "auto", *flags, says=says)
        self.assertIn("samples that are held out now may have been trained on", self.go_on("--allow-changes", text=text).err)

    def test_a_run_whose_newest_checkpoint_is_missing_says_so(self):
        self.train("--stop-at", 20, code=STOPPED)
        shutil.rmtree(self.run_folder / "checkpoints/step-000020")
        said = self.go_on().err
        self.assertIn(f"warning: {self.run_folder}/checkpoints/step-000020 is missing, which was saved last", said)
        self.assertNotIn("is missing", self.go_on().err)

    def test_a_run_alone_goes_on_with_its_own_configuration(self):
        whole = self.folder / "whole"
        self.train(run=whole)
        for arguments in (("--resume", "runs/small"), ("--resume", "auto", "--output-dir", "runs/small"),
                          ("--resume", "runs/small/checkpoints/step-000020")):
            self.train("--overwrite", "-s", "training.max_steps=20")
            config = self.run_folder / "checkpoints" / "step-000020" / "config.yaml"
            self.assertIn("max_steps: 20", config.read_text())
            self.run_dltrain("-q", *arguments, "--max-steps", 40, cwd=self.folder)
            self.assert_same_state(self.run_folder, whole)
        self.assertEqual(os.listdir(self.folder / "runs"), ["small"])
        self.assertIn("would resume from runs/small/checkpoints/step-000040, step 40, in runs/small",
                      self.run_dltrain("--resume", "runs/small", "--dry-run", cwd=self.folder).out)


    def test_resuming_with_another_name_leaves_the_run_as_it_is(self):
        self.train()
        before = checkpoints(self.run_folder)
        self.run_dltrain("-q", "--resume", "runs/small/checkpoints/step-000020", "--name", "branch", "--max-steps", 30, cwd=self.folder)
        self.assertEqual(checkpoints(self.run_folder), before)
        self.assertEqual(checkpoints(self.folder / "runs" / "branch"), ["step-000030"])

    def test_changes_that_do_not_fit_the_parameters_are_not_offered(self):
        self.train("--max-steps", 10)
        result = self.refused(USAGE, self.small(CONSTANT), "--output-dir", self.run_folder, "--resume", "auto", "-s", "model.layers[0].out_features=25",
                              says=["model.layers[0].out_features: 24 -> 25", "other names or shapes", "--output-dir"])
        self.assertNotIn("--allow-changes", result.err)

    def test_a_copy_of_a_checkpoint_needs_a_folder_to_go_on_in(self):
        self.train()
        copy = self.folder / "runs" / "other" / "archive" / "copy"
        shutil.copytree(self.run_folder / "checkpoints" / "latest", copy)
        self.refused(USAGE, "train", "--resume", copy, says=[f"{copy} lies in no run folder", "--name NAME or --output-dir"])
        self.assertEqual([path.name for path in copy.parents[1].iterdir()], ["archive"])
        self.run_dltrain("train", "-q", "--resume", copy, "--output-dir", self.folder / "on", "--max-steps", 50)
        self.assertEqual(steps(self.folder / "on")[-1]["step"], 50)

    def test_a_result_replaces_no_file_of_a_run(self):
        self.train()
        for name in ("metrics.jsonl", "checkpoints/step-000040/model.safetensors"):
            self.refused(USAGE, self.small(CONSTANT), "--output-dir", self.folder / "on", "--result", self.run_folder / name,
                         says="is a file that dltrain has written")

    def test_a_path_without_a_checkpoint_is_told_before_anything_else(self):
        self.train()
        self.refused(STORAGE, self.small(), "--output-dir", self.run_folder, "--resume", "runs/nope", cwd=self.folder,
                     says=["runs/nope does not exist", "runs contains small (step 40)"])


class Teachers(Runs):
    def distil(self, teacher, *arguments, **how):
        return self.train("-s", f"loss={{type: distillation, teacher: {teacher}}}", *arguments, **how)

    def test_a_run_is_not_its_own_teacher(self):
        self.train()
        for extra in (("--overwrite",), ("--resume", "auto", "--allow-changes")):
            self.refused(USAGE, self.small(CONSTANT), "--output-dir", self.run_folder, "-s",
                         f"loss={{type: distillation, teacher: {self.run_folder}}}", *extra, says="lies in the run folder")
        self.assertEqual(len(steps(self.run_folder)), 40)

    def test_the_teacher_of_a_run_stays_the_same(self):
        teacher, student = self.folder / "teacher", self.folder / "student"
        self.train("--max-steps", 10, run=teacher)
        self.distil(teacher, "--max-steps", 10, run=student)
        self.assertIn(f"teacher: [{teacher}/checkpoints/step-000010]", (student / "config.yaml").read_text())
        self.train("--resume", "auto", "--max-steps", 20, run=teacher)
        resume = ("--resume", "auto")
        result = self.distil(teacher, *resume, run=student, code=USAGE)
        self.assertIn(f"weights of the teacher: {teacher}/checkpoints/step-000010 -> {teacher}/checkpoints/step-000020", result.err)
        moved = self.folder / "moved"
        (teacher / "checkpoints" / "step-000010").rename(moved)
        self.distil(moved, *resume, "--max-steps", 20, run=student)
        self.distil(teacher, *resume, "--allow-changes", run=student)
        self.assertEqual(len(steps(student)), 40)


class Times(Runs):
    def test_lines_and_summary_know_the_time(self):
        begin = time.time()
        self.train("--max-steps", 20)
        first = metrics(self.run_folder)
        summary = json.loads((self.run_folder / "summary.json").read_text())
        parts = ("training", "evaluation", "saving", "waiting", "lost")
        for line in first:
            self.assertTrue(begin <= line["time"] <= time.time())
            self.assertEqual((line["attempt"], line["samples_seen"]), (1, 16 * line["step"]))
            self.assertNotIn("tokens_seen", line)
        self.assertEqual([line["time"] for line in first], sorted(line["time"] for line in first))
        self.assertAlmostEqual(sum(summary[f"{part}_seconds"] for part in parts), summary["seconds"], delta=0.05)
        self.assertEqual(summary["lost_seconds"], 0)
        for part in ("training", "evaluation", "saving"):
            self.assertGreater(summary[f"{part}_seconds"], 0)
        self.go_on()
        self.assertEqual([line["attempt"] for line in steps(self.run_folder)], [1] * 20 + [2] * 20)
        later = json.loads((self.run_folder / "summary.json").read_text())
        self.assertEqual(later["attempt"], 2)
        for part in parts:
            # A checkpoint cannot contain the time of its own save.
            self.assertGreater(later[f"{part}_seconds"], 0 if part == "saving" else -1 if part == "waiting" else summary[f"{part}_seconds"])

    def test_steps_that_are_done_again_are_lost_time(self):
        self.train("-s", "checkpoint.save_total_limit=0", "--max-steps", 20)
        lines = metrics(self.run_folder)
        state = json.loads((self.run_folder / "checkpoints" / "step-000010" / "state.json").read_text())
        self.train("--resume", self.run_folder / "checkpoints" / "step-000010", "--overwrite")
        summary = json.loads((self.run_folder / "summary.json").read_text())
        self.assertGreaterEqual(summary["lost_seconds"], lines[-1]["time"] - state["saved_at"] - 1e-3)
        self.assertEqual([line["attempt"] for line in steps(self.run_folder)], [1] * 10 + [2] * 30)

    def test_tokens_are_counted_on(self):
        run = self.gpt()
        for line in steps(run):
            self.assertEqual((line["samples_seen"], line["tokens_seen"]), (8 * line["step"], 128 * line["step"]))
            self.assertGreater(line["tokens_per_second"], 0)
        self.run_dltrain(self.folder / "gpt.yaml", "-q", "--output-dir", run, "--resume", "auto", "--max-steps", 8)
        self.assertEqual(steps(run)[-1]["tokens_seen"], 1024)


if __name__ == "__main__":
    support.main()
