"""dltrain sweep: the trials of an experiment, their ranking, interruptions, several processes, mistakes."""
import csv
import json
import os
import re
import shlex
import signal
import subprocess

from support import DATA, DIVERGED, OK, PROGRAM, RANK, SMALL, SOURCES, STOPPED, USAGE, DltrainTest, main, steps

RATES = "sweep: {trials: 6, parameters: {optimizer.learning_rate: {log: [1e-4, 1e-1]}}}\n"


class Sweep(DltrainTest):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "sweep"

    def config(self, sweep, text=SMALL, name="sweep.yaml"):
        return self.write(name, text + sweep)

    def sweep(self, config, *arguments, **options):
        return self.run_dltrain("sweep", config, "--output-dir", self.out, *arguments, **options)

    def rows(self):
        with open(self.out / "trials.csv", newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def trial(self, name="trial-0000"):
        return json.loads((self.out / name / "trial.json").read_text())

    def test_trials_are_ranked_by_the_evaluation_loss(self):
        said = self.sweep(self.config(RATES.replace("trials", "parallel: 2, trials")), "-s", "optimizer.type=adam", "--seed", 3, "--max-steps", 30).out
        self.assertEqual(len(re.findall(r"^\[\d/6\] trial", said, re.MULTILINE)), 6)
        rows = self.rows()
        losses = [float(row["eval_loss"]) for row in rows]
        self.assertEqual(losses, sorted(losses))
        self.assertEqual(sorted(int(row["trial"]) for row in rows), list(range(6)))
        for row in rows:
            run = self.out / f"trial-{int(row['trial']):04}" / "run"
            summary = json.loads((run / "summary.json").read_text())
            self.assertEqual(summary["eval_loss"], float(row["eval_loss"]))
            self.assertAlmostEqual(float(row["total_seconds"]), summary["seconds"], delta=1e-3 * summary["seconds"])
            self.assertEqual(self.trial(run.parent.name)["settings"]["optimizer.learning_rate"], row["optimizer.learning_rate"])
        self.assertIn(f"the best is trial {rows[0]['trial']}", said)
        # The command that it prints trains the best trial again.
        command = shlex.split(re.search(r"to train it again: dltrain (.*)$", said, re.MULTILINE)[1])
        self.run_dltrain("train", *command, "--output-dir", self.folder / "again", "-q")
        again = json.loads((self.folder / "again" / "summary.json").read_text())
        self.assertEqual(again["eval_loss"], losses[0])

    def test_layouts_can_be_compared(self):
        config = self.config("sweep: {search: grid, ranks: 2, parameters: {parallelism.pipeline: {values: [1, 2]}, "
                             "parallelism.pipeline_schedule: {values: [gpipe, zero_bubble]}}}\n")
        said = self.sweep(config, "-s", "training.micro_batch_size=4", "--max-steps", 6, env={"OMP_NUM_THREADS": "1"}).out
        command = shlex.split(re.search(r"to train it again: dltrain (.*)$", said, re.MULTILINE)[1])
        self.run_dltrain("train", *command, "--output-dir", self.folder / "again", "-q", env={"OMP_NUM_THREADS": "1"})
        rows = self.rows()
        self.assertEqual(sorted((row["parallelism.pipeline"], row["parallelism.pipeline_schedule"]) for row in rows),
                         [("1", "gpipe"), ("1", "zero_bubble"), ("2", "gpipe"), ("2", "zero_bubble")])
        losses = [float(row["eval_loss"]) for row in rows]
        self.assertLess(max(losses) - min(losses), 1e-5 * losses[0])

    def test_a_second_call_trains_nothing_again_and_more_trials_continue_the_sweep(self):
        config = self.config(RATES)
        self.sweep(config)
        before = (self.out / "trial-0000" / "run" / "summary.json").read_bytes()
        said = self.sweep(config).out
        self.assertNotIn("[", said)
        said = self.sweep(config, "-s", "sweep.trials=8").out
        self.assertEqual(len(re.findall(r"^\[\d/8\] trial [67] ", said, re.MULTILINE)), 2)
        self.assertEqual(before, (self.out / "trial-0000" / "run" / "summary.json").read_bytes())
        self.assertEqual(len(self.rows()), 8)
        # Added trials stay, also for a command that does not know of them.
        said = self.sweep(config)
        self.assertIn("has 8 trials, more than the 6 of the file: all are ranked", said.err)
        self.assertEqual(len(self.rows()), 8)
        # Ranking by something else changes nothing; of costs less is better.
        before = (self.out / "trials.csv").read_bytes()
        said = self.sweep(config, "--rank", "-s", "sweep.metric=step_ms_median").out
        self.assertIn("ranked by step_ms_median, smaller is better", said)
        times = [float(time) for time in re.findall(r"^ +\d+ +\d+ +([\d.e-]+) ", said, re.MULTILINE)]
        self.assertEqual(times, sorted(times))
        self.assertEqual(before, (self.out / "trials.csv").read_bytes())
        self.refused(USAGE, "sweep", config, "--output-dir", self.out, "--rank", "-s", "sweep.metric=nothing", says="the runs will have no nothing")
        self.refused(USAGE, "sweep", config, "--dry-run", "-s", "sweep.metric=nothing", says="the runs will have no nothing")
        self.refused(USAGE, "sweep", config, "--output-dir", self.folder / "no", "--rank", says="is not the folder of a sweep")
        self.assertFalse((self.folder / "no").exists())
        self.refused(USAGE, "sweep", config, "--output-dir", self.out, "-s", "optimizer.weight_decay=0.5",
                     says=["holds another sweep", "optimizer.weight_decay: 0.01 -> 0.5"])

    def test_a_stopped_sweep_continues_with_the_same_bits(self):
        long = SMALL.replace("max_steps: 40", "max_steps: 1500")
        config = self.config(RATES.replace("6", "3"), long)
        process = self.start("sweep", config, "--output-dir", self.out)
        self.wait_for(lambda: (self.out / "trial-0001" / "run" / "checkpoints" / "latest").exists(), "a checkpoint of trial 1")
        process.send_signal(signal.SIGTERM)
        ended = self.end(process)
        self.assertEqual(ended.code, STOPPED, str(ended))
        self.assertIn("the same command continues it", ended.err)
        self.assertFalse((self.out / "trial-0001" / "trial.json").exists())
        self.sweep(config)
        whole = self.folder / "whole"
        self.run_dltrain("sweep", config, "--output-dir", whole)
        for trial in ("trial-0000", "trial-0001", "trial-0002"):
            self.assert_same_state(self.out / trial / "run", whole / trial / "run")

    def test_a_killed_sweep_continues_and_leaves_no_process(self):
        long = SMALL.replace("max_steps: 40", "max_steps: 3000")
        config = self.config(RATES.replace("6", "2"), long)
        process = self.start("sweep", config, "--output-dir", self.out)
        run = self.out / "trial-0000" / "run"
        self.wait_for(lambda: (run / "checkpoints" / "latest").exists(), "a checkpoint")
        process.kill()
        process.communicate()
        self.started.remove(process)
        # The kernel ends the run with the sweep, so that its lock is free.
        self.sweep(config)
        self.assertEqual(len(self.rows()), 2)
        self.assertEqual([line["step"] for line in steps(run)], list(range(1, 3001)))

    def test_processes_that_share_a_folder_train_each_trial_once(self):
        config = self.config(RATES.replace("6", "8"), SMALL.replace("max_steps: 40", "max_steps: 200"))
        started = [self.start("sweep", config, "--output-dir", self.out) for _ in range(3)]
        said = [self.end(process) for process in started]
        for result in said:
            self.assertEqual(result.code, OK, str(result))
        trained = [line for result in said for line in re.findall(r"^\[\d/8\] trial (\d)", result.out, re.MULTILINE)]
        self.assertEqual(sorted(trained), [str(i) for i in range(8)])
        for i in range(8):
            attempts = (self.out / f"trial-000{i}" / "run" / "attempts.jsonl").read_text().splitlines()
            self.assertEqual(len(attempts), 1)

    def test_halving_lets_the_best_third_go_on_from_their_checkpoints(self):
        sweep = "sweep: {search: halving, trials: 9, parameters: {optimizer.learning_rate: {log: [1e-5, 1e-1]}}}\n"
        long = SMALL.replace("max_steps: 40", "max_steps: 90")
        said = self.sweep(self.config(sweep, long)).out
        self.refused(USAGE, "sweep", self.config(sweep, long), "--output-dir", self.out, "-s", "sweep.trials=12", says="halving cannot be extended")
        steps = [len(self.trial(f"trial-000{i}")["rounds"]) for i in range(9)]
        self.assertEqual(sorted(steps), [1, 1, 1, 1, 1, 1, 2, 2, 3])
        first = {i: self.trial(f"trial-000{i}")["rounds"][0]["figures"]["eval_loss"] for i in range(9)}
        best = sorted(first, key=first.get)[:3]
        self.assertEqual({i for i in range(9) if steps[i] > 1}, set(best))
        self.assertIn("after 10 steps", said)
        # The schedule is that of the whole run, and the pauses leave no trace in the state.
        winner = steps.index(3)
        whole = self.folder / "whole"
        rate = self.trial(f"trial-000{winner}")["settings"]["optimizer.learning_rate"]
        self.run_dltrain("train", self.small(long), "-q", "-s", f"optimizer.learning_rate={rate}", "--output-dir", whole)
        self.assert_same_state(self.out / f"trial-000{winner}" / "run", whole)

    def test_halving_compares_means_over_repeats(self):
        sweep = "sweep: {search: halving, trials: 3, repeats: 2, parameters: {optimizer.learning_rate: {log: [1e-5, 1e-1]}}}\n"
        long = SMALL.replace("max_steps: 40", "max_steps: 90")
        said = self.sweep(self.config(sweep, long)).out
        self.assertIn("[8/8] ", said)
        runs = [[self.trial(f"trial-000{i}{repeat}")["rounds"] for repeat in ("", "-2")] for i in range(3)]
        means = [sum(rounds[0]["figures"]["eval_loss"] for rounds in of_trial) / 2 for of_trial in runs]
        best = means.index(min(means))
        self.assertEqual([[len(rounds) for rounds in of_trial] for of_trial in runs], [[2, 2] if i == best else [1, 1] for i in range(3)])
        self.assertEqual([row["runs"] for row in self.rows()], ["2", "2", "2"])
        self.refused(USAGE, "sweep", self.config(sweep, long), "--output-dir", self.out, "-s", "sweep.repeats=3", says="holds another sweep")

    def test_repeats_are_averaged_and_roles_choose_the_best_nuisance_value(self):
        sweep = """sweep:
  search: grid
  repeats: 2
  metric: eval_accuracy
  parameters: {"model.layers[0].out_features": [4, 16], optimizer.learning_rate: [1e-4, 1e-2]}
  roles: {scientific: ["model.layers[0].out_features"]}
"""
        said = self.sweep(self.config(sweep)).out
        for row in self.rows():
            name = f"trial-{int(row['trial']):04}"
            values = [json.loads((self.out / run / "run" / "summary.json").read_text()) for run in (name, name + "-2")]
            self.assertEqual([value["seed"] for value in values], [7, 8])
            self.assertAlmostEqual(sum(value["eval_accuracy"] for value in values) / 2, float(row["eval_accuracy"]), places=6)
        table = said[said.index("the best trial for each scientific value:"):].splitlines()[2:4]
        self.assertEqual(sorted(int(line.split()[0]) for line in table), [4, 16])
        self.assertRegex(table[0], r"\+- ")
        # A single run says nothing about the best trial.
        self.assertNotRegex(said, r"repeat 1 .*the best")
        self.assertRegex(said, r"repeat 2 .*the best mean so far")

    def test_diverged_and_failed_trials_do_not_end_the_sweep(self):
        sweep = "sweep: {search: grid, parameters: {optimizer.learning_rate: [1e-2, 1e30]}}\n"
        said = self.sweep(self.config(sweep)).out
        self.assertRegex(said, r"-\s+1\s+diverged")
        self.assertEqual([(row["rank"], row["exit_code"]) for row in self.rows()], [("1", "0"), ("", str(DIVERGED))])
        self.out = self.folder / "all"
        result = self.sweep(self.config(sweep.replace("1e-2", "1e31")), code=DIVERGED)
        self.assertIn("all 2 trials diverged; trial 0: ", result.err)
        self.out = self.folder / "failed"
        table = self.write("table.csv", "x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(40)))
        data = f"data: {{type: csv, path: {table}, target: y, eval_fraction: 0.25}}\n"
        text = re.sub(r"data:\n.*\n.*\n", data, SMALL)
        broken = self.folder / "broken.csv"
        sweep = f"sweep: {{search: grid, parameters: {{data.path: [{table}, {broken}]}}}}\n"
        self.refused(USAGE, "sweep", self.config(sweep, text), "--output-dir", self.out, says=["sweep.yaml:", f"data.path: {broken}: ", "No such file"])
        broken.write_text(table.read_text().replace("7,1", "7,"))
        result = self.sweep(self.config(sweep, text), code=DATA)
        self.assertIn("1 of 2 trials failed", result.err)
        self.assertIn("broken.csv", result.err)
        broken.write_text(table.read_text())
        said = self.sweep(self.config(sweep, text)).out
        self.assertEqual(len(re.findall(r"^\[", said, re.MULTILINE)), 1)

    def test_a_trial_that_has_no_time_for_an_evaluation_has_no_result(self):
        config = self.config("sweep: {search: grid, parameters: {training.max_time: [1e-9, 1000]}}\n")
        said = self.sweep(config).out
        self.assertRegex(said, r"no eval_loss: training.max_time ended the run after step \d+, before its first evaluation")
        self.assertEqual([(row["rank"], row["trial"], row["exit_code"]) for row in self.rows()], [("1", "1", "0"), ("", "0", str(STOPPED))])
        self.assertNotIn("[", self.sweep(config).out)

    def test_a_change_of_the_data_is_told(self):
        table = self.write("table.csv", "x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(40)))
        text = re.sub(r"data:\n.*\n.*\n", f"data: {{type: csv, path: {table}, target: y, eval_fraction: 0.25}}\n", SMALL)
        config = self.config(RATES.replace("6", "2"), text)
        self.assertNotIn("the training data has changed", self.sweep(config).err)
        table.write_text("x,y\n" + "".join(f"{i * i},{i % 2}\n" for i in range(40)))
        said = self.sweep(config, "-s", "sweep.trials=3")
        self.assertIn("warning: the training data has changed during the sweep: trial 2 had other data than trial 0", said.err)

    def test_a_sweep_is_ranked_by_its_own_configuration_and_by_another_metric(self):
        config = self.config(RATES.replace("trials: 6", "search: tpe, trials: 2"))
        self.sweep(config)
        said = self.sweep(self.out / "config.yaml", "--rank").out
        self.assertIn("ranked by eval_loss", said)
        self.assertNotIn("unfinished", said)
        self.assertIn("ranked by eval_accuracy", self.sweep(config, "--rank", "-s", "sweep.metric=eval_accuracy").out)
        self.refused(USAGE, "sweep", config, "--output-dir", self.out, "-s", "sweep.metric=eval_accuracy", says="--rank ranks them by another one")
        (self.out / "trials.csv").unlink()
        said = self.sweep(config, "--rank", "-s", "sweep.trials=4").out
        self.assertIn("the sweep is unfinished: 2 of 4 runs have ended", said)
        self.assertNotIn("trials.csv", said)

    def test_plans_that_waste_time_are_warned_of(self):
        def warned(sweep, says, text=SMALL):
            said = self.sweep(self.config(sweep, text), "--dry-run")
            self.assertIn(says, said.err)
            return said.out

        halving = RATES.replace("trials: 6", "search: halving, trials: 9, min_steps: 30")
        self.assertIn("round 1: 9 trials train 100 % of the steps", warned(halving, "warning: halving has one round only"))
        warned("sweep: {trials: 6, parameters: {optimizer.learning_rate: [1e-3, 1e-2]}}\n", "warning: 4 of 6 trials have the values of another one")
        warned(RATES, "warning: there is no evaluation data", re.sub(r"  eval: .*\n", "", SMALL))

    def test_printed_commands_suit_the_shell_and_keep_the_name(self):
        self.out = self.folder / "a b"
        said = self.sweep(self.config(RATES.replace("6", "1")), "--name", "chosen").out
        self.assertIn(f"curves: dltrain report '{self.out}'", said)
        self.assertRegex(said, "to train it again: dltrain .*--name chosen")

    def test_a_sweep_goes_on_without_a_reader_of_its_output(self):
        config = self.config(RATES.replace("6", "3"))
        process = self.begin(["bash", "-o", "pipefail", "-c", '"$0" sweep "$1" --output-dir "$2" | head -1', PROGRAM, str(config), str(self.out)])
        ended = self.end(process)
        self.assertIn(ended.code, (OK, 128 + signal.SIGPIPE), str(ended))
        self.assertNotIn("error", ended.err)
        self.assertEqual(len(self.rows()), 3)

    def test_a_terminal_shows_what_runs(self):
        terminal, stderr = os.openpty()
        command = [PROGRAM, "sweep", self.config(RATES.replace("6", "1")), "--output-dir", self.out]
        subprocess.run(command, cwd=SOURCES, env=dict(os.environ, TERM="xterm"), stdout=subprocess.DEVNULL, stderr=stderr, check=True)
        self.assertIn(b"running: trial-0000 for 0:00", os.read(terminal, 1 << 12))
        os.close(terminal)
        os.close(stderr)

    def test_a_killed_trial_is_told_with_its_signal(self):
        """By no warning of the run, such as that of the many epochs."""
        few = SMALL.replace("max_steps: 40", "max_steps: 20000")
        kill = "hooks: {evaluation: 'kill -9 $PPID', timeout: 20}\n"
        for ranks, reason in ((1, r"Trial 0: killed by signal 9\n"), (2, r"Trial 0: dltrain: rank 0 \(process \d+\) was killed by signal 9 ")):
            sweep = f"sweep: {{search: grid, ranks: {ranks}, parameters: {{optimizer.learning_rate: [1e-2]}}}}\nevaluation: {{eval_steps: 5}}\n"
            said = self.sweep(self.config(sweep + kill, few), code=RANK)
            self.assertIn("warning: training.max_steps 20000", (self.out / "trial-0000" / "output.txt").read_text())
            self.assertRegex(said.err, r"1 of 1 trials failed; the same command repeats them. " + reason)
            self.out = self.folder / "ranks"

    def test_each_trial_has_a_prometheus_file(self):
        prom = f"logging: {{logging_steps: 1, prometheus: '{self.folder}/a #1: b.prom'}}\n"
        self.sweep(self.config(RATES.replace("6", "2"), SMALL.replace("logging: {logging_steps: 1}\n", prom)))
        files = sorted(self.folder.glob("*.prom"))
        self.assertEqual([file.name for file in files], ["a #1: b-trial-0000.prom", "a #1: b-trial-0001.prom"])
        self.assertIn('{run="small-trial-0001"}', files[1].read_text())

    def test_best_values_at_an_edge_are_reported(self):
        sweep = "sweep: {trials: 16, parameters: {optimizer.learning_rate: {log: [1e-6, 1e-4]}}}\n"
        said = self.sweep(self.config(sweep)).out
        self.assertRegex(said, r"[345] of the best 5 trials lie at the upper edge of learning_rate: extend it to 0\.001")
        self.assertIn("eval_loss over learning_rate (from 1e-06 to 0.0001, logarithmic):", said)
        self.assertRegex(said, r"(?m)^\^: 1 point above \d\.\d+$")

    def test_the_plan_of_a_sweep_writes_nothing(self):
        config = self.config(RATES.replace("trials", "search: tpe, trials").replace("6", "12"))
        said = self.sweep(config, "--dry-run").out
        self.assertEqual(len(re.findall(r"^trial \d: learning_rate=", said, re.MULTILINE)), 10)
        self.assertIn("the values of trials 10 to 11 follow from the results before them", said)
        self.assertFalse(self.out.exists())

    def test_mistakes_are_reported_before_anything_is_trained(self):
        def refused(sweep, says):
            self.refused(USAGE, "sweep", self.config(sweep), "--output-dir", self.out, says=says)
            self.assertFalse((self.out / "trial-0000").exists())

        refused("", "the experiment has no section sweep")
        # All values are checked at once, and reported where they are written.
        refused(RATES.replace("learning_rate", "learning_rat").replace("log: [1e-4, 1e-1]}}", "log: [1e-4, 1e-1]}, optimizer.type: [adamw, madgrad], training.max_steps: [-1, 3]}"),
                ["sweep.yaml:", "did you mean 'learning_rate'?", "optimizer.type: madgrad: unknown type", "training.max_steps: -1: "])
        refused("sweep: {trials: 3, parameters: {optimizer.learning_rate: 0.1}}\n", "expected values [a, b, c], {range: [low, high]}")
        refused("sweep: {trials: 3, parameters: {optimizer.learning_rate: {min: 0, max: 1}}}\n", "did you mean 'range'?")
        refused("sweep: {trials: 3}\n", "sweep needs parameters: {optimizer.learning_rate: {log: [1e-4, 1e-1]}}")
        refused("sweep: {trials: 3, parameters: [a]}\n", "expected a map of keys to values")
        refused("sweep: {parameters: {seed: [1, 2]}}\n", ["`repeats: N` trains each trial with N seeds", "sweep needs trials: N, or search: grid for all combinations"])
        refused("sweep: {search: grid, trials: 3, parameters: {optimizer.learning_rate: {range: [0, 1]}}}\n",
                ["leave trials out", "a grid needs {values: […]} or points: N"])
        refused("sweep: {trials: 3, parameters: {optimizer.learning_rate: {log: [1, 0.1]}}}\n", "1 is not below 0.1")
        refused("sweep: {trials: 3, parameters: {optimizer.learning_rate: {log: [0, 1]}}}\n", "sweep.parameters.optimizer.learning_rate.log[0] must be above 0")
        for limits in ("[0.01]", "[1e-4, 1e-2, 1e-1]"):
            refused(f"sweep: {{trials: 3, parameters: {{optimizer.learning_rate: {{log: {limits}}}}}}}\n",
                    "log of optimizer.learning_rate needs two numbers, low and high")
        refused("sweep: {trials: 3, parameters: {training.global_batch_size: {range: [16, 64]}}}\n",
                ["sweep.yaml:", "add integer: true to the range of training.global_batch_size"])
        refused(RATES.replace("trials", "metric: best_eval_accuracy, trials"), "add checkpoint.metric: accuracy")
        self.refused(USAGE, "sweep", self.config(RATES.replace("trials", "repeats: 2, trials")), "--output-dir", self.out, "--seed", 2**63 - 1,
                     says="use a smaller seed")
        refused(RATES.replace("trials", "metric: eval_acuracy, trials"), "the runs will have no eval_acuracy; did you mean eval_accuracy?")
        self.assertFalse(self.out.exists())
        tpe = RATES.replace("trials: 6", "search: tpe, metric: eval_los, trials: 3")
        refused(tpe, "did you mean eval_loss?")
        self.sweep(self.config(tpe.replace("eval_los,", "eval_loss,")))
        self.out = self.folder / "another"
        refused(RATES.replace("trials", "metric: val_acc, trials"), "the runs will have no val_acc; their results are loss, accuracy, eval_loss, best_eval_loss, eval_accuracy")
        refused(RATES.replace("trials: 6", "trials: 6, roles: {scientific: lr}"), "lr is no parameter of this sweep")
        # A batch that does not suit the micro-batch, in one combination only.
        refused("sweep: {search: grid, parameters: {training.global_batch_size: [16, 18], training.micro_batch_size: [4, 8]}}\n",
                ["trial 2 is no valid experiment (global_batch_size=18, micro_batch_size=4)"])
        # The first trials of a search that learns are known, and so are the values that later ones choose from.
        refused("sweep: {search: tpe, trials: 3, parameters: {optimizer.type: [sgd, adamw, lion], optimizer.betas: [[0.9, 0.99], [0.9, 0.95]]}}\n",
                "trial 0 is no valid experiment")
        refused("sweep: {search: tpe, trials: 40, parameters: {training.global_batch_size: [20, 32, 48, 64, 80, 96, 112, 16], training.micro_batch_size: [1, 2, 4, 8]}}\n",
                "a trial that the search may choose is no valid experiment (global_batch_size=20, micro_batch_size=8)")
        # A section replaces the keys in it.
        rate = "optimizer.learning_rate: {log: [1e-4, 1e-1]}"
        kinds = "optimizer: [{type: sgd, learning_rate: 0.7}, {type: adam, learning_rate: 0.1}]"
        for parameters in (f"{rate}, {kinds}", f"{kinds}, {rate}"):
            refused(f"sweep: {{trials: 3, parameters: {{{parameters}}}}}\n", ["sweep.yaml:", "optimizer contains optimizer.learning_rate"])
        self.sweep(self.config(f"sweep: {{trials: 3, parameters: {{optimizer: [{{type: sgd}}, {{type: adam}}], {rate}}}}}\n"), "--dry-run")
        self.refused(USAGE, "train", self.config(RATES), says="the section sweep is for `dltrain sweep`")
        run = self.folder / "run"
        self.run_dltrain("train", self.config(RATES), "-s", "sweep=null", "-q", "--output-dir", run)
        self.refused(USAGE, "sweep", self.config(RATES), "--output-dir", run, says="not the folder of a sweep")
        mine = self.write("mine/notes.txt", "mine").parent
        self.refused(USAGE, "sweep", self.config(RATES), "--output-dir", mine, says="not the folder of a sweep")
        self.assertEqual(os.listdir(mine), ["notes.txt"])

    def test_gpus_are_shared_out_among_the_runs(self):
        """The runs use the CPU; what they are given shows in their commands' environment."""
        sweep = "sweep: {search: grid, parallel: 2, gpus: [0, 1], parameters: {optimizer.learning_rate: [1e-3, 1e-2, 3e-2]}}\n"
        hooks = f"hooks: {{end: 'echo $CUDA_VISIBLE_DEVICES >> {self.folder}/gpus.txt'}}\n"
        config = self.config(sweep + hooks)
        self.sweep(config, env={"CUDA_VISIBLE_DEVICES": "5,GPU-7"})
        self.assertEqual(set((self.folder / "gpus.txt").read_text().split()), {"5", "GPU-7"})
        self.refused(USAGE, "sweep", config, "--output-dir", self.folder / "other", env={"CUDA_VISIBLE_DEVICES": "5"},
                     says="sweep.gpus has GPU 1, but CUDA_VISIBLE_DEVICES has 1")
        self.refused(USAGE, "sweep", self.config(sweep.replace("[0, 1]", "[0]")), says="need 2 GPUs, not 1")

    def test_damaged_results_are_trained_again(self):
        config = self.config(RATES.replace("6", "4"))
        self.sweep(config)
        rows = self.rows()
        for trial, text in enumerate(("", "[]", '{"rounds": [3]}', '{"rounds": [{"figures": [], "exit_code": "x"}]}')):
            self.write(self.out / f"trial-000{trial}" / "trial.json", text)
        self.assertEqual(self.sweep(config).code, OK)
        strip = lambda rows: [{key: row[key] for key in ("trial", "eval_loss")} for row in rows]
        self.assertEqual(strip(self.rows()), strip(rows))


class StopAt(DltrainTest):
    def test_a_run_stops_at_a_step_or_share_and_continues_to_the_same_bits(self):
        small, run = self.small(), self.folder / "run"
        ended = self.run_dltrain("train", small, "--output-dir", run, "--stop-at", "7", code=STOPPED)
        self.assertIn("stopped after step 7 by --stop-at", ended.err)
        summary = json.loads((run / "summary.json").read_text())
        self.assertEqual((summary["steps"], summary["eval_step"], summary["reason"]), (7, 7, "stop-at"))
        self.run_dltrain("train", small, "--output-dir", run, "--stop-at", "50%", "--resume", "auto", code=STOPPED)
        self.assertEqual(json.loads((run / "summary.json").read_text())["steps"], 20)
        # There already: it evaluates and stops.
        again = self.run_dltrain("train", small, "--output-dir", run, "--stop-at", "20", "--resume", "auto", code=STOPPED)
        self.assertIn("nothing to do: step 20 was reached before; --resume auto continues without --stop-at", again.err)
        self.run_dltrain("train", small, "--output-dir", run, "--resume", "auto")
        whole = self.folder / "whole"
        self.run_dltrain("train", small, "--output-dir", whole)
        self.assert_same_state(run, whole)
        for text in ("0", "-3", "x", "2.5", "10 steps"):
            self.refused(USAGE, "train", small, "--stop-at=" + text, says="--stop-at")


if __name__ == "__main__":
    main()
