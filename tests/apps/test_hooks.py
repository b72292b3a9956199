"""hooks: commands at checkpoints, evaluations and the end, beside the training."""
import json
import signal

from support import DIVERGED, PROGRAM, SMALL, STOPPED, USAGE, DltrainTest, checkpoints, main, metrics


class Hooks(DltrainTest):
    def setUp(self):
        super().setUp()
        self.run_folder, self.notes = self.folder / "run", self.folder / "notes.txt"

    def config(self, hooks, text=SMALL):
        return self.write("hooks.yaml", text + f"hooks: {json.dumps(hooks)}\n")

    def train(self, hooks, *arguments, text=SMALL, **options):
        return self.run_dltrain("train", self.config(hooks, text), "-q", "--output-dir", self.run_folder, *arguments, **options)

    def lines(self):
        return self.notes.read_text().splitlines()

    def test_commands_run_at_each_event_in_order_and_change_nothing(self):
        note = f"echo $DLTRAIN_EVENT $DLTRAIN_STEP $DLTRAIN_EXIT_CODE $(ls $DLTRAIN_CHECKPOINT | wc -l) >> {self.notes}"
        result = f"echo \"$DLTRAIN_RESULT\" > {self.folder}/result.json"
        self.train({"checkpoint": note, "evaluation": result, "end": f"echo end $DLTRAIN_EXIT_CODE $DLTRAIN_RUN >> {self.notes}"})
        events = [line.split() for line in self.lines()]
        self.assertEqual([event[:2] for event in events[:-1]], [["checkpoint", str(step)] for step in (10, 20, 30, 40)])
        self.assertTrue(all(int(event[2]) >= 4 for event in events[:-1]), events)
        self.assertEqual(events[-1], ["end", "0", str(self.run_folder)])
        found = json.loads((self.folder / "result.json").read_text())
        self.assertEqual(found["eval_loss"], [line["eval_loss"] for line in metrics(self.run_folder) if "eval_loss" in line][-1])
        plain = self.folder / "plain"
        self.run_dltrain("train", self.small(), "-q", "--output-dir", plain)
        self.assert_same_state(plain, self.run_folder)

    def test_training_does_not_wait_and_a_checkpoint_stays_while_it_is_read(self):
        """The first checkpoint is read until the last step; newer ones would have replaced it."""
        read = ("until grep -q '\"step\": 40,' $DLTRAIN_RUN/metrics.jsonl; do sleep 0.05; done; "
                f"ls $DLTRAIN_CHECKPOINT/model.safetensors >> {self.notes} 2>&1")
        text = SMALL.replace("save_steps: 10", "save_steps: 5, save_total_limit: 1, async: false")
        self.train({"checkpoint": f"test $DLTRAIN_STEP != 5 || {{ {read}; }}", "timeout": 60}, text=text)
        self.assertEqual(len(self.lines()), 1)
        self.assertTrue(self.lines()[0].endswith("step-000005/model.safetensors"), self.lines())
        # It goes when its command has ended.
        self.assertEqual(checkpoints(self.run_folder), ["step-000040"])
        self.run_dltrain("train", self.config({}, text), "-q", "--output-dir", self.run_folder, "--resume", "auto", "--max-steps", 50)
        self.assertFalse((self.run_folder / "checkpoints" / "step-000005").exists())

    def test_a_failure_is_a_warning_and_a_hang_is_ended(self):
        said = self.train({"checkpoint": "echo oops >&2; exit 3", "evaluation": "sleep 100 & sleep 100", "timeout": 0.5}).err
        self.assertIn("hooks.checkpoint: exit code 3 (", said)
        self.assertIn("hooks.evaluation: killed after 0.5 s (hooks.timeout)", said)
        self.assertEqual((self.run_folder / "hooks.txt").read_text(), "oops\n" * 4)
        said = self.train({"end": "nothere"}, "--overwrite").err
        self.assertIn("hooks.end: exit code 127", said)
        self.assertIn("nothere", (self.run_folder / "hooks.txt").read_text())

    def test_the_end_is_told_for_stopped_and_failed_runs_too(self):
        end = {"end": f"echo $DLTRAIN_EXIT_CODE >> {self.notes}"}
        self.train(end, "--stop-at", 7, code=STOPPED)
        self.train(end, "--overwrite", "-s", "optimizer.learning_rate=1e30", code=DIVERGED)
        self.assertEqual(self.lines(), [str(STOPPED), str(DIVERGED)])
        self.assertIn('end: ""\n', self.run_dltrain("train", "--print-config", self.config(end), "-s", "hooks.end=").out)
        process = self.start("train", self.config(end, SMALL.replace("max_steps: 40", "max_steps: 400000")), "-q", "--output-dir", self.run_folder, "--overwrite")
        self.wait_for(lambda: (self.run_folder / "checkpoints" / "latest").exists() and len(metrics(self.run_folder)) > 3, "steps")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.end(process).code, STOPPED)
        self.assertEqual(self.lines()[2:], [str(STOPPED)])

    def test_only_rank_0_runs_them(self):
        self.train({"checkpoint": f"echo $DLTRAIN_STEP >> {self.notes}"}, "--nproc-per-node", 2)
        self.assertEqual(self.lines(), ["10", "20", "30", "40"])

    def test_commands_are_no_ranks(self):
        """They start dltrain, also with ranks, whatever has started this run; what is not about ranks stays."""
        small, variables = self.small(SMALL.replace("max_steps: 40", "max_steps: 4")), self.folder / "variables"
        train = f"{PROGRAM} train {small} -q -s training.max_steps=2 --output-dir {self.folder}/inner"
        hooks = {"checkpoint": f"{PROGRAM} eval $DLTRAIN_CHECKPOINT", "evaluation": train, "end": f"{train}-2 --nproc-per-node 2; env > {variables}", "timeout": 60}
        around = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
                  "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "77"}
        said = self.run_dltrain("launch", "--nproc-per-node", 2, self.config(hooks, small.read_text()), "-q", "--output-dir", self.run_folder, env=around)
        self.assertNotIn("hooks.", said.err, (self.run_folder / "hooks.txt").read_text())
        self.assertEqual([len(metrics(self.folder / name)) for name in ("inner", "inner-2")], [3, 3])
        names = {line.split("=")[0] for line in variables.read_text().splitlines()}
        self.assertFalse({name for name in names if "RANK" in name or "WORLD" in name or name.startswith(("MASTER_", "TORCHELASTIC_", "DLTRAIN_STORE"))})
        self.assertFalse(names & (around.keys() - {"SLURM_JOB_ID"}))
        self.assertLessEqual({"SLURM_JOB_ID", "PATH", "DLTRAIN_RUN"}, names)

    def test_a_wait_for_commands_is_told_once(self):
        self.train({"checkpoint": "sleep 3"}, text=SMALL.replace("save_steps: 10", "save_steps: 40"))
        log = (self.run_folder / "log.txt").read_text()
        self.assertEqual(log.count("waiting for "), 1, log)
        self.assertRegex(log, r"waiting for 1 command of hooks, each at most 600 s")
        self.train({"end": "true"}, "--overwrite")
        self.assertNotIn("waiting for ", (self.run_folder / "log.txt").read_text())

    def test_mistakes(self):
        self.refused(USAGE, "train", self.config({"checkpoints": "ls"}), says="did you mean 'checkpoint'?", cwd=self.folder)
        self.refused(USAGE, "train", self.config({"timeout": 0}), says="above 0", cwd=self.folder)
        self.assertFalse((self.folder / "runs").exists())


if __name__ == "__main__":
    main()
