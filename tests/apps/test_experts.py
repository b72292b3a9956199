"""Experts divided over ranks (parallelism.expert), as processes. Layouts are swept in tests/run/experts_over_ranks.cpp, with threads as
ranks."""
from launching import LaunchTest
from support import MEMORY, OK, SOURCES, USAGE, main, safetensors, steps

GOLDEN = "tests/golden/language"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


class Experts(LaunchTest):
    def train(self, model, folder, *arguments, ranks=1, code=OK):
        run = self.folder / folder
        result = self.run_dltrain(SOURCES / GOLDEN / f"{model}.yaml", "-q", "--output-dir", run, "--nproc-per-node", ranks, "-s",
                                  "training.micro_batch_size=1", "-s", "checkpoint.save_total_limit=0", *arguments, env=ONE_THREAD, code=code)
        return result if code != OK else run

    def assert_equal(self, found, expected, what):
        self.assertEqual(len(found), len(expected), what)
        for i, (a, b) in enumerate(zip(found, expected)):
            self.assertLessEqual(abs(a - b), 1e-5 * abs(b), f"{what}: step {i + 1}")

    def test_any_layout_continues_a_checkpoint(self):
        for model in ("mixtral", "qwen3_moe"):
            losses = [line["loss"] for line in steps(self.train(model, f"{model}-alone"))]
            half = ("-s", "checkpoint.save_steps=5")
            two = self.train(model, f"{model}-two", *half, "-s", "parallelism.expert=2", ranks=2)
            self.assert_equal([line["loss"] for line in steps(two)], losses, f"{model} on two ranks")
            one = self.train(model, f"{model}-one", *half, "--resume", two / "checkpoints" / "step-000005")
            self.assert_equal([line["loss"] for line in steps(one)], losses[5:], f"{model}, continued on one")
            four = self.train(model, f"{model}-four", "-s", "parallelism.expert=4", "-s", "parallelism.zero_stage=1", "--resume",
                              one / "checkpoints" / "step-000010", ranks=4)
            self.assert_equal([line["loss"] for line in steps(four)], losses[10:], f"{model}, continued on four")
            if model == "mixtral":  # config.json has no place for router_z_loss
                continue
            folder = self.folder / "exported"
            self.run_dltrain("export", two, folder)
            whole = safetensors(two / "checkpoints" / "step-000020" / "model-00001-of-00002.safetensors")
            whole |= safetensors(two / "checkpoints" / "step-000020" / "model-00002-of-00002.safetensors")
            name = "model.layers.1.mlp.experts.up_proj.weight"
            experts = [safetensors(folder / "model.safetensors")[name.replace("up_proj", f"{e}.up_proj")][2] for e in range(8)]
            self.assertEqual(b"".join(experts), whole[name][2])
            configuration = self.folder / "from.yaml"
            configuration.write_text((SOURCES / GOLDEN / f"{model}.yaml").read_text().split("model:")[0] + f"model: {{from: {folder}}}\nloss:" +
                                     (SOURCES / GOLDEN / f"{model}.yaml").read_text().split("loss:")[1])
            first = []
            for ranks in (1, 2):
                run = self.folder / f"from-{ranks}"
                self.run_dltrain(configuration, "-q", "--output-dir", run, "--nproc-per-node", ranks, "-s", f"parallelism.expert={ranks}",
                                 "--max-steps", 2, env=ONE_THREAD)
                first.append([line["loss"] for line in steps(run)])
            self.assert_equal(first[1], first[0], "from a folder")

    def test_too_small_a_buffer_ends_the_run(self):
        result = self.train("mixtral", "run", "-s", "parallelism.expert=2", "-s", "parallelism.expert_buffer=1", ranks=2, code=MEMORY)
        self.assertRegex(result.err, r"step 1, of which nothing was kept: .*: \d+ rows had no room in the buffers between the ranks of the "
                                     r"experts; parallelism.expert_buffer is 1, [\d.]+ would have been enough in this step")
        self.assertEqual(result.err.count("had no room"), 1, str(result))

    def test_a_buffer_that_becomes_too_small_costs_no_checkpoint(self):
        (self.folder / "t.txt").write_text("".join(chr(97 + (i * i + i // 7) % 26) for i in range(4000)))
        configuration = self.folder / "moe.yaml"
        configuration.write_text(f"""model: {{type: mixtral, num_layers: 2, hidden_size: 32, num_heads: 4, num_kv_heads: 2, num_experts: 4,
  experts_per_token: 2, intermediate_size: 24, max_positions: 64}}
data: {{type: text, path: {self.folder}/t.txt, tokenizer: char, sequence_length: 32, eval_fraction: 0.1}}
optimizer: {{type: adamw, learning_rate: 3.0e-2}}
training: {{global_batch_size: 8, max_steps: 20}}
checkpoint: {{save_steps: 1}}
logging: {{logging_steps: 1}}
parallelism: {{expert: 2}}
""")
        run = ("-q", "--nproc-per-node", 2)
        self.run_dltrain(configuration, *run, "--output-dir", self.folder / "worst", env=ONE_THREAD)
        needed = [line["expert_buffer"] for line in steps(self.folder / "worst")]
        step = next(i for i in range(1, len(needed)) if needed[i] > 1.05 * max(needed[:i]))
        self.run_dltrain(configuration, *run, "--output-dir", self.folder / "late", "-s",
                         f"parallelism.expert_buffer={1.02 * max(needed[:step])}", env=ONE_THREAD, code=MEMORY)
        self.assertTrue((self.folder / "late" / "checkpoints" / f"step-{step:06}" / "model.safetensors.index.json").exists(), needed)

    def test_the_plan_shows_the_exchange(self):
        configuration = SOURCES / GOLDEN / "mixtral.yaml"
        plan = self.run_dltrain("plan", configuration, "--world", 4, "-s", "parallelism.expert=2").out
        self.assertIn("groups of 2 ranks divide the experts", plan)
        self.assertRegex(plan, r"gathered, [\d.]+ [KM]?i?B between experts")
        result = self.run_dltrain("plan", configuration, "--world", 3, "-s", "parallelism.expert=2", code=USAGE)
        self.assertIn("3 data-parallel ranks cannot be divided into groups of 2 for the experts", result.err)


main()
