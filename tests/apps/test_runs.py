"""dltrain runs: list, show, diff, reproduce."""
import json
import re
import shlex
import shutil
import signal

from support import CHECK, DIVERGED, SMALL, STOPPED, STORAGE, USAGE, DltrainTest, main


class Runs(DltrainTest):
    def setUp(self):
        super().setUp()
        self.runs = self.folder / "runs"
        self.config = self.write("small.yaml", SMALL + 'experiment: {study: rates, goal: which rate is best, tags: [quick]}\n')
        for rate in ("0.1", "0.01", "0.001"):
            self.train(f"rate-{rate}", "-s", f"optimizer.learning_rate={rate}")

    def train(self, name, *more, code=0):
        return self.run_dltrain("train", self.config, "-q", "--output-dir", self.runs / name, "-s", "training.max_steps=8", "-s", "logging.logging_steps=2",
                                *more, code=code)

    def listed(self, *more):
        return self.run_dltrain("runs", "list", self.runs, *more).out.splitlines()

    def test_the_table_has_results_and_what_the_runs_differ_in(self):
        lines = self.listed("--sort", "-optimizer.learning_rate")
        self.assertRegex(lines[0], r"^run +status +steps +time +loss .*learning_rate")
        self.assertEqual([line.split()[0].rsplit("/", 1)[1] for line in lines[1:]], ["rate-0.1", "rate-0.01", "rate-0.001"])
        self.assertEqual(lines[1].split()[1:3], ["finished", "8"])
        summary = self.runs / "rate-0.1" / "summary.json"
        summary.write_text(re.sub(r'"waiting_seconds": [^,]+', '"waiting_seconds": 90', summary.read_text()))
        self.assertRegex(self.listed("--sort", "-optimizer.learning_rate")[1], r" finished +8 +9\d\.\d s ")
        self.assertEqual(len(self.listed("--filter", "optimizer.learning_rate<0.05", "--filter", "tag=quick")), 3)
        self.assertEqual(self.listed("--filter", "tag=slow"), ["no runs of 3 pass the filter"])
        self.assertEqual(self.listed("--columns", "seed,loss")[0].split(), ["run", "status", "steps", "time", "seed", "loss"])
        objects = [json.loads(line) for line in self.listed("--json")]
        self.train("z", "--seed", 3, "-s", "checkpoint.save_steps=4", "-s", "data.train.samples=90", "-s", "logging.logging_steps=4")
        self.assertEqual(self.listed()[0].split()[-4:], ["learning_rate", "seed", "save_steps", "samples"])
        self.assertEqual({run["settings"]["optimizer.learning_rate"] for run in objects}, {0.1, 0.01, 0.001})
        settings = objects[0]["settings"]
        self.assertEqual([settings[key] for key in ("autotune", "evaluation.samples", "seed", "experiment.goal")], ["off", None, 7, "which rate is best"])
        self.train("sgd", "-s", "optimizer.type=sgd")
        for key, first in (("optimizer.type", "rate-0.001"), ("-optimizer.type", "sgd")):
            self.assertEqual(self.listed("--sort", key)[1].split()[0].rsplit("/", 1)[1], first)
        self.train("tagged", "-s", 'experiment.tags=["b c", "off"]')
        for filters in (("tag=b c",), ("tag=off", "autotune=off")):
            listed = self.listed("--sort", "seed", *(word for one in filters for word in ("--filter", one)))
            self.assertEqual([line.split()[0].rsplit("/", 1)[1] for line in listed[1:]], ["tagged"])
        for wrong in ("optimizer.learning_rate", "loss<much", "nothing=1"):
            self.refused(USAGE, "runs", "list", self.runs, "--filter", wrong, says=f"--filter {wrong}" if "=1" in wrong else f"--filter '{wrong}'")
        short, full = (self.listed("--sort", f"-{key}", "--filter", f"{key}>0.005", "--columns", key) for key in ("learning_rate", "optimizer.learning_rate"))
        self.assertEqual(short, full)
        self.refused(USAGE, "runs", "list", self.runs, "--sort", "classes",
                     says="--sort: no run has a result or setting classes; did you mean data.eval.classes or data.train.classes?\n")
        for flag in ("--sort", "--columns"):
            self.refused(USAGE, "runs", "list", self.runs, flag, "nothing", says=f"{flag}: no run has a result or setting nothing")
        self.refused(STORAGE, "runs", "list", self.folder / "nowhere", says="nowhere does not exist; give the folder")
        self.refused(STORAGE, "runs", "list", __file__, says=f"{__file__} is not a folder; give the folder")

    def test_filters_compare_and_know_the_words_of_a_status(self):
        for text, count in (("steps>=8", 3), ("steps>8", 0), ("steps <= 8", 3), ("steps!=8", 0), ("steps==8", 3), ("learning_rate!=0.1", 2),
                            ("time>=0", 3), ("tag!=quick", 0), ("status=failed", 0), ("status!=failed", 3)):
            listed = self.listed("--filter", text)
            self.assertEqual(len(listed) - 1, count, f"{text}: {listed}")
        for text in ("status=faild", "status>3"):
            self.refused(USAGE, "runs", "list", self.runs, "--filter", text,
                         says=f"--filter '{text}': status is = or != one of running, finished, stopped, failed, interrupted, broken\n")
        for text in ("steps!8", "steps>=", "=8"):
            self.refused(USAGE, "runs", "list", self.runs, "--filter", text, says=f"--filter '{text}' is not KEY=VALUE")
        self.assertEqual([line.split()[0] for line in self.listed("--sort", "-run", "--columns", "steps")[1:]],
                         [str(self.runs / f"rate-{rate}") for rate in ("0.1", "0.01", "0.001")])
        self.assertEqual(len(self.listed("--sort", "time")), 4)
        self.assertEqual(self.listed("--columns", "seed, steps,loss,seed")[0].split(), ["run", "status", "steps", "time", "seed", "loss"])
        self.refused(USAGE, "runs", "list", self.runs, "--sort", "lerning_rate", says="--sort: no run has a result or setting lerning_rate; did you mean learning_rate?\n")

    def test_a_failed_run_is_listed_with_its_last_log_line(self):
        self.train("diverged", "-s", "optimizer.learning_rate=1e30", "-s", "logging.logging_steps=1", code=DIVERGED)
        last = json.loads((self.runs / "diverged" / "metrics.jsonl").read_text().splitlines()[-1])
        for word in ("failed", "failed (4)"):
            listed = self.listed("--filter", f"status={word}")
            self.assertEqual(len(listed), 2, listed)
            self.assertRegex(listed[1], rf"/diverged +failed \(4\) +{last['step']} +[\d.]+ s +\d")

    def test_the_settings_with_the_most_values_are_columns(self):
        self.train("other", "-s", "loss.label_smoothing=0.1", "-s", "loss.z_loss=1e-4", "-s", "lr_scheduler.warmup_steps=0", "-s", "lr_scheduler.min_ratio=0.1")
        self.assertIn("learning_rate", self.listed()[0].split())

    def test_the_folder_of_a_sweep_is_no_run(self):
        sweep = self.folder / "a sweep"
        config = self.write("sweep.yaml", SMALL + "sweep: {trials: 2, parameters: {optimizer.learning_rate: {log: [1e-4, 1e-1]}}}\n")
        self.run_dltrain("sweep", config, "--output-dir", sweep, "--max-steps", 4)
        for command in (("runs", "show"), ("runs", "reproduce"), ("watch",), ("eval",)):
            said = self.refused(STORAGE, *command, sweep, says=["is the folder of a sweep, not of a run", f"{sweep}/trial-*/run\n"]).err
        ranked = self.run_dltrain(*shlex.split(re.search(r"`dltrain (.*?)`", said)[1])).out
        self.assertIn("ranked by eval_loss", ranked)
        # A reproduction is no trial.
        self.run_dltrain("runs", "reproduce", sweep / "trial-0000" / "run", "-q", code=None)
        self.assertTrue((sweep / "trial-0000" / "run-reproduced" / "summary.json").exists())
        listed = self.run_dltrain("runs", "list", sweep, "--columns", "loss").out
        self.assertEqual(re.findall(r"trial-\d+/\S+", listed), ["trial-0000/run", "trial-0001/run"])

    def test_broken_folders_are_listed_as_such(self):
        broken = self.runs / "rate-0.1"
        (broken / "summary.json").write_text("{\"exit_code\": 0,")
        (self.runs / "rate-0.01" / "config.yaml").unlink()
        (self.runs / "rate-0.001" / "metrics.jsonl").write_text("rubbish\n{\"step\": 2, \"loss\": null}\n")
        (self.runs / "rate-0.001" / "attempts.jsonl").write_text('{"attempt": "\\u001b[31m", "command": 3}\n')
        lines = self.listed()
        self.assertEqual(sorted(line.split()[1] for line in lines[1:4]), ["broken", "broken", "finished"])
        self.assertTrue(any("summary.json is no JSON object" in line for line in lines[4:]), lines)
        self.assertTrue(any("config.yaml is missing" in line for line in lines[4:]), lines)
        self.run_dltrain("runs", "show", self.runs / "rate-0.001")
        self.refused(STORAGE, "runs", "show", self.runs / "rate-0.01", says="is no run folder: it has no config.yaml")
        config = self.runs / "rate-0.001" / "config.yaml"
        text = config.read_text()
        for damaged, says in ((text[:text.index("optimizer:")], "config.yaml is damaged: it has no section optimizer"), ("a: [1, 2\n", "config.yaml: not valid YAML")):
            config.write_text(damaged)
            said = self.run_dltrain("runs", "show", self.runs / "rate-0.001", code=STORAGE).out
            self.assertIn(f"rate-0.001: broken: {says}", said)

    def test_links_to_runs_are_runs_and_each_counts_once(self):
        links = self.folder / "all"
        links.mkdir()
        for name, target in (("a", "../runs/rate-0.1"), ("b", "../runs/rate-0.1"), ("c", self.runs / "rate-0.01"), ("loop", "."), ("self", "self"), ("gone", "nowhere")):
            (links / name).symlink_to(target)
        said = self.run_dltrain("runs", "list", links, self.runs).out.splitlines()
        self.assertEqual([line.split()[0].rsplit("/", 2)[1:] for line in said[1:]], [["all", "a"], ["all", "c"], ["runs", "rate-0.001"]])

    def test_show_says_when_where_and_how(self):
        said = self.run_dltrain("runs", "show", self.runs / "rate-0.1").out
        for part in ("finished", 'goal: which rate is best', "study: rates", "attempt 1: 20", "1 rank,", "$ dltrain train ", "steps                8", "loss:"):
            self.assertIn(part, said)
        self.train("cost", "-s", "experiment.goal='cost $${X} and $5'")
        said = self.run_dltrain("runs", "show", self.runs / "cost").out
        self.assertIn("goal: cost ${X} and $5\n", said)
        self.assertIn("experiment.goal='cost $${X} and $5'", shlex.split(re.search(r"\$ dltrain (.*)", said)[1]))

    def test_diff_names_settings_and_the_step_where_losses_part(self):
        a, b = self.runs / "rate-0.1", self.runs / "rate-0.01"
        said = self.run_dltrain("runs", "diff", a, b).out
        self.assertIn("  optimizer.learning_rate: 0.1 -> 0.01\n", said)
        # The first step is computed with equal weights, and it is the first that is logged.
        self.assertRegex(said, r"losses part at step 2: \S+ and \S+ .*, after 1 equal ones")
        self.assertIn("weights of the last checkpoints: different", said)
        self.train("again", "-s", "optimizer.learning_rate=0.1")
        said = self.run_dltrain("runs", "diff", a, self.runs / "again").out
        self.assertIn("losses and gradient norms are equal in all 5 logged steps", said)
        self.assertIn("weights of the last checkpoints: bit-identical", said)

    def test_diff_compares_weights_of_other_numbers_of_files(self):
        for stage in (0, 3):
            self.train(f"zero-{stage}", "--nproc-per-node", 2, "-s", f"parallelism.zero_stage={stage}")
        self.assertNotEqual(*(len(list((self.runs / f"zero-{stage}/checkpoints/latest").glob("model*.safetensors"))) for stage in (0, 3)))
        said = self.run_dltrain("runs", "diff", self.runs / "zero-0", self.runs / "zero-3").out
        self.assertIn("weights of the last checkpoints: bit-identical", said)

    def test_reproduce_runs_no_hooks_and_writes_no_file_of_the_first_run(self):
        notes, prom, run = self.folder / "notes", self.folder / "metrics.prom", self.folder / "hooked"
        self.run_dltrain(self.small(), "-q", "--output-dir", run, "-s", f"hooks.end=echo end >> {notes}", "-s", f"logging.prometheus={prom}")
        before = (notes.read_text(), prom.read_text())
        self.assertIn("\nreproduced\n", self.run_dltrain("runs", "reproduce", run, "--output-dir", self.folder / "copy").out)
        self.assertEqual((notes.read_text(), prom.read_text()), before)
        self.refused(USAGE, "runs", "reproduce", run, "--output-dir", self.folder / "copy", says="copy exists; remove it, or name another folder")

    def test_reproduce_repeats_a_run_to_the_bit(self):
        run = self.runs / "rate-0.1"
        result = self.run_dltrain("runs", "reproduce", run, "-q", "--output-dir", self.folder / "copy")
        said = result.out
        self.assertNotIn("step 8", result.err)
        self.assertTrue(said.endswith("weights of the last checkpoints: bit-identical\nreproduced\n"), said)
        # A run whose log was changed is not what its configuration gives.
        text = (run / "metrics.jsonl").read_text().replace('"grad_norm": ', '"grad_norm": 1')
        (run / "metrics.jsonl").write_text(text)
        said = self.run_dltrain("runs", "reproduce", run, code=CHECK).out
        self.assertIn("losses part at step 1", said)
        self.assertTrue(said.endswith("\nnot reproduced\n"), said)
        self.assertTrue((self.runs / "rate-0.1-reproduced" / "summary.json").exists())

    def test_reproduce_says_that_no_weights_were_compared(self):
        shutil.rmtree(self.runs / "rate-0.1" / "checkpoints")
        said = self.run_dltrain("runs", "reproduce", self.runs / "rate-0.1", "-q", code=CHECK).out
        self.assertIn("losses and gradient norms are equal in all 5 logged steps", said)
        self.assertTrue(said.endswith(f"weights were not compared: {self.runs / 'rate-0.1'} contains no checkpoint\n"
                                      "only the logged losses are reproduced: no weights were compared\n"), said)

    def test_reproduce_says_that_the_data_is_another(self):
        table, run = self.write("data.csv", "".join(f"{i},{i % 4}\n" for i in range(40))), self.folder / "run"
        config = self.write("csv.yaml", SMALL[:SMALL.index("data:")] + f"data: {{type: csv, path: {table}, header: false, target: 1}}\n" + SMALL[SMALL.index("optimizer:"):])
        self.run_dltrain("train", config, "-q", "--output-dir", run, "--max-steps", 4)
        table.write_text(table.read_text().replace("7,3", "8,3"))
        said = self.run_dltrain("runs", "reproduce", run, "-q", code=CHECK).out
        self.assertRegex(said, r"^made with:\n  data: \S+ -> \S+\nlosses part at step 1")

    def test_a_stopped_reproduction_is_no_run_to_resume(self):
        run = self.folder / "long"
        self.run_dltrain("train", self.config, "-q", "--output-dir", run, "-s", "training.max_steps=3000")
        process = self.start("runs", "reproduce", run, "--output-dir", self.folder / "copy")
        log = self.folder / "copy" / "metrics.jsonl"
        self.wait_for(lambda: log.exists() and log.stat().st_size > 0, "a step")
        process.send_signal(signal.SIGTERM)
        said = self.end(process)
        self.assertEqual(said.code, STOPPED, str(said))
        self.assertIn(f"by signal 15; remove {self.folder / 'copy'} to start again", said.err)

    def test_what_config_yaml_alone_does_not_repeat_is_refused(self):
        run = self.runs / "rate-0.1"
        self.run_dltrain("train", self.config, "-q", "--output-dir", run, "-s", "optimizer.learning_rate=0.2", "-s", "training.max_steps=12",
                         "--resume", "auto")
        self.refused(USAGE, "runs", "reproduce", run, says="settings changed in mid-run (config.until-step-000008.yaml)")
        self.assertEqual([json.loads(line)["attempt"] for line in (run / "attempts.jsonl").read_text().splitlines()], [1, 2])
        ranks = self.runs / "ranks"
        self.run_dltrain("train", self.config, "-q", "--nproc-per-node", 2, "--output-dir", ranks, "-s", "training.max_steps=4")
        self.refused(USAGE, "runs", "reproduce", ranks, says="the run had 2 ranks: start `dltrain launch --nproc-per-node 2 ")

    def test_the_command_that_repeats_a_run_of_ranks_runs_no_hooks_and_writes_no_other_file(self):
        notes, prom, run, copy = self.folder / "notes", self.folder / "metrics.prom", self.folder / "hooked", self.folder / "copy"
        self.run_dltrain(self.small(), "-q", "--nproc-per-node", 2, "--output-dir", run, "-s", f"hooks.end=echo end >> {notes}",
                         "-s", f"logging.prometheus={prom}", "-s", "logging.wandb={project: p}")
        before = (notes.read_text(), prom.read_bytes())
        prom.write_text("# Written by dltrain\n")
        said = self.refused(USAGE, "runs", "reproduce", run, "--output-dir", copy).err
        self.run_dltrain(*shlex.split(re.search(r"start `dltrain (.*?)`", said)[1]))
        self.assertEqual((notes.read_text(), prom.read_text()), ("end\n", "# Written by dltrain\n"))
        self.assertFalse((copy / "wandb").exists())
        self.assertIn("bit-identical", self.run_dltrain("runs", "diff", run, copy).out)


if __name__ == "__main__":
    main()
