"""The comforts of the training loop: best and kept checkpoints, asynchronous saving, saving on request, early stopping,
evaluations and checkpoints by epochs."""
import json
import os
import signal

import support
from support import OK, SMALL, USAGE, checkpoints, metrics, steps

EVALUATED = SMALL.replace("logging:", "evaluation: {eval_steps: 4}\nlogging:").replace("save_steps: 10", "save_total_limit: 1")


def evaluations(run):
    return [line for line in metrics(run) if "eval_loss" in line]


def linked(run, link):
    return os.readlink(run / "checkpoints" / link)


def state(run, checkpoint):
    return json.loads((run / "checkpoints" / checkpoint / "state.json").read_text())


class Checkpoints(support.DltrainTest):
    def test_best_is_the_checkpoint_of_the_best_evaluation(self):
        path, run = self.small(EVALUATED), self.folder / "run"
        for metric, pick, extra in (("loss", min, ()), ("accuracy", max, ()), ("accuracy", min, ("-s", "checkpoint.mode=min"))):
            self.run_dltrain(path, "-q", "--output-dir", run, "-s", f"checkpoint.metric={metric}", "--overwrite", *extra)
            lines = evaluations(run)
            best = pick(line[f"eval_{metric}"] for line in lines)
            step = next(line["step"] for line in lines if line[f"eval_{metric}"] == best)
            self.assertEqual(linked(run, "best"), f"step-{step:06}")
            self.assertEqual(linked(run, "latest"), "step-000040")
            # save_total_limit is 1: only the newest and the best are left.
            self.assertEqual(checkpoints(run), sorted({"step-000040", f"step-{step:06}"}))
            summary = json.loads((run / "summary.json").read_text())
            self.assertEqual((summary["best_step"], summary[f"best_eval_{metric}"]), (step, best))
            self.assertEqual([line["step"] for line in lines if line.get("best")][-1], step)
        measured = self.folder / "eval.json"
        self.run_dltrain("eval", path, "--checkpoint", run / "checkpoints" / "best", "--result", measured)
        self.assertAlmostEqual(json.loads(measured.read_text())["eval_accuracy"], best, delta=1e-8)

    def test_the_best_so_far_is_part_of_a_checkpoint(self):
        text = EVALUATED.replace("type: cosine", "type: constant").replace("save_total_limit: 1", "save_total_limit: 0")
        path, whole, run = self.small(text), self.folder / "whole", self.folder / "run"
        self.run_dltrain(path, "-q", "--output-dir", whole)
        for limit in (12, 24, 40):
            self.run_dltrain(path, "-q", "--output-dir", run, "--resume", "auto", "--max-steps", limit)
        for link in ("best", "latest"):
            self.assertEqual(linked(run, link), linked(whole, link))
        self.assertEqual([line["step"] for line in evaluations(run) if line.get("best")],
                         [line["step"] for line in evaluations(whole) if line.get("best")])
        # Going on from an older checkpoint takes back what was best after it.
        first = checkpoints(whole)[0]
        self.run_dltrain(path, "-q", "--output-dir", whole, "--resume", whole / "checkpoints" / first, "--overwrite", "--max-steps",
                         int(first[5:]))
        self.assertEqual((linked(whole, "best"), linked(whole, "latest")), (first, first))

    def test_the_time_of_a_step_is_without_evaluations_and_saving(self):
        path, run = self.small(EVALUATED), self.folder / "run"
        self.run_dltrain(path, "-q", "--output-dir", run, "-s", "data.eval.samples=20000", "-s", "evaluation.eval_steps=1")
        lines = [line for line in metrics(run) if "step_ms" in line]
        self.assertEqual(len(lines), 40)
        summary = json.loads((run / "summary.json").read_text())
        # Parts of the loop's time that do not overlap, however busy the machine is.
        steps_take = sum(line["step_ms"] for line in lines) / 1e3
        self.assertLessEqual(steps_take, (summary["training_seconds"] + summary["waiting_seconds"]) * (1 + 1e-6))
        for line in lines:
            self.assertAlmostEqual(line["samples_per_second"] * line["step_ms"] / 1e3, 16, delta=1e-3)  # six digits each

    def test_metrics_that_evaluations_do_not_give_are_refused(self):
        path = self.small(EVALUATED)
        result = self.refused(USAGE, path, "-s", "checkpoint.metric=acuracy", "--output-dir", self.folder / "run",
                              says="there is no metric 'acuracy'; evaluations give loss, accuracy")
        self.assertIn("checkpoint.metric=acuracy", result.err)
        self.refused(USAGE, path, "-s", "training.early_stopping={patience: 2, metric: f2}", says="no metric 'f2'")
        self.refused(USAGE, path, "-s", "checkpoint.metric=loss", "-s", "data.eval=null", says="needs an eval split")

    def test_checkpoints_at_multiples_of_keep_every_are_never_removed(self):
        run = self.folder / "run"
        self.run_dltrain(self.small(SMALL.replace("save_steps: 10", "save_steps: 4, save_total_limit: 2, keep_every: 16")), "-q",
                         "--output-dir", run)
        self.assertEqual(checkpoints(run), ["step-000016", "step-000032", "step-000036", "step-000040"])

    def test_asynchronous_checkpoints_have_the_bytes_of_synchronous_ones(self):
        path = self.small(SMALL.replace("save_steps: 10", "save_steps: 1, save_total_limit: 0"))
        runs = {}
        for mode in ("true", "false"):
            runs[mode] = self.folder / mode
            self.run_dltrain(path, "-q", "--output-dir", runs[mode], "-s", f"checkpoint.async={mode}")
        self.assertEqual(len(checkpoints(runs["true"])), 40)
        for name in checkpoints(runs["true"]):
            for file in ("model.safetensors", "optimizer.safetensors"):
                self.assert_same_file(*(run / "checkpoints" / name / file for run in runs.values()))
            states = [json.loads((run / "checkpoints" / name / "state.json").read_text()) for run in runs.values()]
            for state in states:
                del state["saved_at"], state["seconds"]
            self.assertEqual(*states)

    def test_sigusr1_saves_and_the_run_goes_on(self):
        path = self.small(SMALL.replace("save_steps: 10", "save_total_limit: 0"))
        for ranks in (1, 2):
            run = self.folder / f"run{ranks}"
            process = self.start(path, "--output-dir", run, "--max-steps", 3000, "-s", "lr_scheduler.type=constant",
                                 "--nproc-per-node", ranks)
            self.wait_for(lambda: (run / "metrics.jsonl").exists() and len((run / "metrics.jsonl").read_text()) > 2000, "steps")
            process.send_signal(signal.SIGUSR1)
            result = self.end(process)
            self.assertEqual(result.code, OK, str(result))
            self.assertEqual(len(checkpoints(run)), 2, str(result))
            self.assertEqual(checkpoints(run)[-1], "step-003000")

    def test_checkpoints_and_evaluations_by_epochs_and_minutes(self):
        # 100 samples in steps of 16: the epochs end within steps 7, 13, 19, 25, 32, 38.
        text = SMALL.replace("save_steps: 10", "save_epochs: 2, save_total_limit: 0").replace("logging:", "evaluation: {eval_epochs: 1}\nlogging:")
        run = self.folder / "run"
        self.run_dltrain(self.small(text), "-q", "--output-dir", run, "-s", "checkpoint.metric=accuracy", "-s", "checkpoint.mode=min",
                         "-s", "optimizer.learning_rate=0")
        self.assertEqual([line["step"] for line in evaluations(run)], [7, 13, 19, 25, 32, 38, 40])
        # Nothing improves after the first evaluation, which is saved as the best.
        self.assertEqual(checkpoints(run), [f"step-{step:06}" for step in (7, 13, 25, 38, 40)])
        often = self.folder / "often"
        self.run_dltrain(self.small(SMALL.replace("save_steps: 10", "save_minutes: 1e-9, save_total_limit: 0")), "-q", "--output-dir", often)
        self.assertEqual(len(checkpoints(often)), 40)


class EarlyStopping(support.DltrainTest):
    # Nothing is learnt, so no evaluation is better than the first.
    text = EVALUATED.replace("learning_rate: 1.0e-2", "learning_rate: 0").replace("max_grad_norm: 1.0", "early_stopping: 3")

    def test_a_run_that_no_longer_improves_ends_and_says_why(self):
        path, run = self.small(self.text), self.folder / "run"
        result = self.run_dltrain(path, "--output-dir", run)
        self.assertIn("stopped early after step 16: loss did not improve in 3 evaluations", result.err)
        self.assertIn(f" at step 4: {run}/checkpoints/best (eval, predict and export use the newest", result.err)
        summary = json.loads((run / "summary.json").read_text())
        self.assertEqual((summary["exit_code"], summary["reason"], summary["steps"], summary["best_step"]), (OK, "early stopping", 16, 4))
        self.assertEqual(linked(run, "latest"), "step-000016")
        self.assertEqual(linked(run, "best"), "step-000004")
        # It is done, also where the summary was lost; with more patience it goes on.
        for prepare in (lambda: None, (run / "summary.json").unlink):
            prepare()
            self.run_dltrain(path, "-q", "--output-dir", run, "--resume", "auto")
            summary = json.loads((run / "summary.json").read_text())
            self.assertEqual((summary["reason"], summary["steps"]), ("early stopping", 16))
        self.run_dltrain(path, "-q", "--output-dir", run, "--resume", "auto", "-s", "training.early_stopping=5")
        self.assertEqual(json.loads((run / "summary.json").read_text())["steps"], 24)

    def test_the_count_of_evaluations_is_part_of_a_checkpoint(self):
        path, run = self.small(self.text.replace("type: cosine", "type: constant")), self.folder / "run"
        for limit, expected in ((8, 8), (12, 12), (40, 16)):
            self.run_dltrain(path, "-q", "--output-dir", run, "--resume", "auto", "--max-steps", limit)
            self.assertEqual(json.loads((run / "summary.json").read_text())["steps"], expected)
        self.assertEqual(state(run, "latest")["early_stopping"]["since"], 3)

    def test_a_run_that_improves_enough_goes_on(self):
        text = self.text.replace("learning_rate: 0", "learning_rate: 1.0e-2").replace(", seed: 1", "")
        run = self.folder / "run"
        self.run_dltrain(self.small(text), "-q", "--output-dir", run)
        self.assertEqual(json.loads((run / "summary.json").read_text())["reason"], "finished")
        self.run_dltrain(self.small(text), "-q", "--output-dir", run, "--overwrite", "-s",
                         "training.early_stopping={patience: 2, min_delta: 100}")
        self.assertEqual(json.loads((run / "summary.json").read_text())["steps"], 12)

    def test_two_ranks_stop_together(self):
        run = self.folder / "run"
        self.run_dltrain(self.small(self.text), "-q", "--output-dir", run, "--nproc-per-node", 2)
        self.assertEqual(json.loads((run / "summary.json").read_text())["reason"], "early stopping")

    def test_early_stopping_without_evaluations_is_refused(self):
        path = self.small(self.text)
        self.refused(USAGE, path, "-s", "data.eval=null", says="early_stopping needs an eval split")
        self.refused(USAGE, path, "-s", "evaluation.eval_steps=null", says="give evaluation.eval_steps or eval_epochs")
        self.refused(USAGE, path, "-s", "training.early_stopping={metric: loss}", says="missing key 'patience'")


if __name__ == "__main__":
    support.main()
