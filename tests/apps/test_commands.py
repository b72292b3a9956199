"""The commands besides training, and that generated documents are what the program says."""
import json
import platform
import re
import subprocess

import support
from support import CHECK, OK, PROGRAM, SMALL, SOURCES, STORAGE, USAGE, safetensors, steps

COMMANDS = ("train", "launch", "check", "plan", "fit", "lr-find", "sweep", "profile", "eval", "average", "predict", "export", "import", "generate", "score", "runs", "report", "watch", "data", "init", "list", "schema", "completion", "version")


class Documents(support.DltrainTest):
    def test_generated_documents_are_what_the_program_says(self):
        said = self.run_dltrain("schema", "--reference").out
        self.assertEqual((SOURCES / "docs" / "config.md").read_text(), said, "docs/config.md is old: scripts/update_docs.sh")
        schema = json.loads(self.run_dltrain("schema").out)
        for section in ("model", "data", "optimizer", "training", "checkpoint", "logging", "evaluation", "seed", "name"):
            self.assertIn(section, schema["properties"])

    def test_documented_exit_codes_are_those_of_the_program(self):
        table = (SOURCES / "docs" / "exit-codes.md").read_text()
        documented = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.M)}
        header = (SOURCES / "lib" / "base" / "error.h").read_text()
        body = re.search(r"enum class ExitCode[^{]*\{(.*?)\};", header, re.S).group(1)
        self.assertEqual(documented, {int(code) for code in re.findall(r"= (\d+)", body)})


class Commands(support.DltrainTest):
    def test_every_command_has_help_that_succeeds(self):
        overview = self.run_dltrain("--help").out
        for command in COMMANDS:
            self.assertRegex(overview, rf"(?m)^  {command} ")
            text = self.run_dltrain(command, "--help").out
            self.assertIn("--help", text)
        self.assertEqual(set(re.findall(r"(?m)^  ([a-z-]+)  +[A-Z]", overview)), set(COMMANDS))

    def test_version_names_the_instruction_set_which_can_be_limited(self):
        self.assertRegex(self.run_dltrain("version").out, r"cpu: .*, Highway \d+\.\d+\.\d+ for \w+\n")
        if platform.machine() == "x86_64":
            limited = self.run_dltrain("version", env={"DLTRAIN_MAX_CPU_ISA": "AVX2"}).out
            self.assertNotIn("AVX3", limited)
            self.assertNotIn("avx512", limited)
            profile = ("profile", SOURCES / "configs/bench/mlp.yaml", "--steps", "1", "--warmup", "1", "--output-dir", self.folder / "profile")
            kernels = self.run_dltrain(*profile, env={"DLTRAIN_MAX_CPU_ISA": "AVX2"}).out
            self.assertRegex(kernels, r"matmul +oneDNN")
            self.assertNotRegex(kernels, r"matmul +panels")  # they need AVX-512
        self.refused(USAGE, "version", env={"DLTRAIN_MAX_CPU_ISA": "AVX1"}, says="only AVX2 can be asked for")

    def test_version_names_program_and_libraries(self):
        for arguments in (["version"], ["--version"]):
            self.assertRegex(self.run_dltrain(*arguments).out, r"(?m)\Adltrain \d+\.\d+\.\d+ \(.+\)\ncpu: .*oneDNN")

    def test_the_kernels_of_the_plugin_are_told_with_what_it_lacks(self):
        version = self.run_dltrain("version").out
        if "cuda: built with" not in version and "(sm_" not in version:
            self.skipTest("this build has no CUDA plug-in")
        kernels = self.run_dltrain("list", "ops").out
        for op, variants in (("matmul", "cuBLASLt"), ("conv2d", "cuDNN"), ("fused_elementwise", "NVRTC|interpreter"),
                             ("attention", r"cuDNN|own \(not cuDNN: this build has no cuDNN attention: run scripts/cudnn_frontend.sh")):
            self.assertRegex(version, rf"(?m)^  {op}: ({variants})")
            self.assertRegex(kernels, rf"(?m)^  cuda, {op}: ({variants})")

    def test_list_shows_every_family_each_by_itself_and_the_keys_of_one(self):
        everything = self.run_dltrain("list").out
        self.assertLess(max(map(len, everything.splitlines())), 200)
        for family, member in (("models", "lenet"), ("layers", "linear"), ("initializers", "he_normal"), ("losses", "cross_entropy"), ("optimizers", "adamw"), ("schedules", "cosine"),
                               ("datasets", "csv"), ("transforms", "resize"), ("ops", "matmul"), ("devices", "cpu")):
            self.assertRegex(self.run_dltrain("list", family).out, rf"(?m)^  {member}\b")
            if family not in ("ops", "devices"):
                self.assertRegex(everything, rf"\b{family}\b(.|\n)*\b{member}\b")
        self.assertRegex(self.run_dltrain("list", "optimizers", "adamw").out, r"(?m)^  betas +Decay(.|\n)*default \[0.9, 0.999\]")
        self.assertRegex(self.run_dltrain("list", "models", "gpt2").out, r"(?m)^  num_heads +heads of attention \(default 12\)")
        self.refused(USAGE, "list", "colours", says="colours")
        self.refused(USAGE, "list", "optimiser", says="did you mean optimizers?")
        self.refused(USAGE, "list", "layers", "linaer", says="did you mean linear?")

    def test_completion_is_valid_shell_and_knows_commands_and_options(self):
        script = self.run_dltrain("completion", "bash").out
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
        probe = script + """
complete_line() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _dltrain; echo "${COMPREPLY[@]}"; }
complete_line dltrain ch
complete_line dltrain train --resum
complete_line dltrain train -s optimizer.learning_r
complete_line dltrain train -s optimizer.ty
complete_line dltrain train -s model.num_laye
complete_line dltrain list la
complete_line dltrain --overw
complete_line dltrain launch --nproc-per-node 2 --re
complete_line dltrain launch --nproc-per-node 2 gpt.yaml --resum
complete_line dltrain list layers conv2
complete_line dltrain list optimizers adamw mor
complete_line dltrain train mor
complete_line dltrain predict runs/a mor
complete_line dltrain generate --prompt-file mor
complete_line dltrain init conv
complete_line dltrain predict runs/a --split ""
complete_line dltrain train --device ""
complete_line dltrain train --resume n
complete_line dltrain eval "my r"; echo "${#COMPREPLY[@]}"
"""
        for name in ("more.csv", "more.yaml", "more/x.csv", "my run/x.csv"):
            self.write(name, "")
        said = subprocess.run(["bash", "-c", probe], cwd=self.folder, capture_output=True, text=True, check=True).stdout
        self.assertEqual(said.split(), ["check", "--resume", "optimizer.learning_rate=", "optimizer.type=", "model.num_layers=", "layers", "--overwrite", "--redirects", "--resume", "conv2d",
                                        "more/", "more.yaml", *2 * ["more/", "more.csv", "more.yaml"],
                                        "convnet", "train", "eval", "auto", "cpu", "cuda", "never", "my", "run/", "1"])
        self.assertIn("bashcompinit", self.run_dltrain("completion", "zsh").out)
        self.refused(USAGE, "completion", "fish", says="fish")

    def test_the_plan_states_the_memory_that_a_run_takes(self):
        small = self.small()
        for i, (configuration, extra) in enumerate(((small, []), (small, ["-s", "training.micro_batch_size=4"]),
                                                    (SOURCES / "tests/golden/convnet/relu-adamw.yaml", []))):
            planned = int(re.search(r"(\d+) bytes are allocated", self.run_dltrain("plan", configuration, *extra).out)[1])
            result = self.folder / f"result-{i}.json"
            self.run_dltrain(configuration, "-q", "--output-dir", self.folder / f"run-{i}", "--max-steps", 2, "--result", result, *extra)
            summary = json.loads(result.read_text())
            self.assertEqual(summary["arena_bytes"], planned)
            saves = "convnet" not in str(configuration)  # before its end
            self.assertEqual("checkpoint snapshot" in self.run_dltrain("plan", configuration, *extra).out, saves)
            self.assertEqual(summary, json.loads((self.folder / f"run-{i}" / "summary.json").read_text()))

    def test_the_plan_estimates_checkpoints_at_the_rate_of_the_disk(self):
        run = self.folder / "run"
        self.run_dltrain(self.small(), "-q", "--output-dir", run)
        tensors = [tensor for stem in ("model", "optimizer") for tensor in safetensors(run / "checkpoints" / "latest" / f"{stem}.safetensors").values()]
        size = sum(len(tensor[2]) for tensor in tensors)
        plan = self.run_dltrain("plan", self.small()).out
        self.assertIn(f"checkpoint: {size / 1e6:.4g} MB, written by 1 rank\n", plan)
        self.assertIn("estimate at 1 GB/s of the disk (assumed; ", plan)
        self.assertNotIn("--grace", plan)
        slow = self.run_dltrain("plan", self.small(), "--disk", 1000, "-s", "checkpoint.async=false", "--grace", 0.5).out
        seconds = f"{size / 1000:.3g} s"
        self.assertIn(f"of the disk (--disk): {seconds} to save, {seconds} to load; training waits {seconds} for each", slow)
        self.assertIn(f"warning: a checkpoint takes {seconds} to save, longer than the 0.5 s from SIGTERM to SIGKILL", slow)

    def test_the_plan_of_several_ranks_counts_their_threads(self):
        extra = ["-s", "training.micro_batch_size=4", "-s", "parallelism.zero_stage=3"]
        plan = self.run_dltrain("plan", self.small(), "--world", 2, *extra).out
        found = re.search(r"(\d+) bytes are allocated before the first step, with (\d+) threads? a rank", plan)
        here = self.run_dltrain("plan", self.small(), "--nproc-per-node", 2, *extra).out
        self.assertRegex(here.removeprefix(plan), r"^memory: at most [\d.]+ MiB needed on 2 ranks, ")
        result = self.folder / "result.json"
        self.run_dltrain(self.small(), "-q", "--nproc-per-node", 2, "--output-dir", self.folder / "run", "--max-steps", 2, "--result", result, *extra)
        self.assertEqual(json.loads(result.read_text())["arena_bytes"], int(found[1]))
        self.assertGreaterEqual(int(found[2]), 1)

    def test_the_plan_refuses_rates_of_links_that_are_not_there(self):
        self.refused(USAGE, "plan", self.small(), "--link", "1e9", says="--link requires several ranks")
        self.refused(USAGE, "plan", self.small(), "--world", 2, "--node-link", "1e9", says="all 2 ranks are on one node")
        of_nodes = self.run_dltrain("plan", self.small(), "--world", 2, "--nproc-per-node", 1, "--node-link", "1e9").out
        self.assertEqual(self.run_dltrain("plan", self.small(), "--world", 2, "--nodes", 2, "--network", "1e9").out, of_nodes)
        self.assertEqual(self.run_dltrain("plan", self.small(), "--nodes", 2, "--nproc-per-node", 1, "--network", "1e9").out, of_nodes)
        self.refused(USAGE, "plan", self.small(), "--nodes", 3, "--world", 4, says="--world 4 cannot be divided among 3 nodes")
        self.refused(USAGE, "plan", self.small(), "--nodes", 2, "--world", 4, "--nproc-per-node", 4, says="are 2 ranks a node")
        for command in ("plan", "fit"):
            self.refused(USAGE, command, self.small(), "--world", 4, "--nproc-per-node", 3, says="--world 4 cannot be divided among nodes of --nproc-per-node 3")
        self.run_dltrain("plan", self.small(), "--world", 2, "--nproc-per-node", 3)
        self.refused(USAGE, "plan", self.small(), "--nodes", 2, says="--nodes requires --world or --nproc-per-node")

    def test_the_plan_promises_the_same_bits_where_they_are_the_same(self):
        tied = SOURCES / "tests/golden/language/gpt2.yaml"
        fixed = ("-s", "training.reduction=fixed", "-s", "training.micro_batch_size=2")
        promise = "bit-identical: another number of ranks or micro-steps for the same global batch and micro_batch_size 2"
        self.assertIn(promise + "\n", self.run_dltrain("plan", self.small(), *fixed).out)
        self.assertIn(promise + ", but not another number of pipeline stages (layers share a weight)\n",
                      self.run_dltrain("plan", tied, *fixed).out)

    def test_checks_find_the_mistakes_of_a_layout(self):
        self.refused(USAGE, "check", self.small(), "-s", "parallelism.pipeline=50", says="50 stages, but the model has only 2 layers")
        self.assertIn("NOTE  layout: planned for 2 ranks; the checks run on one\n",
                      self.run_dltrain("check", self.small(), "-s", "parallelism.tensor=2", "--time", 1, code=None).out)
        mixture = SOURCES / "tests/golden/language/mixtral.yaml"
        for layout, ranks in ((("expert=2",), 2), (("expert=4", "context=2"), 4)):
            settings = [word for key in layout for word in ("-s", f"parallelism.{key}")]
            self.assertIn(f"NOTE  layout: planned for {ranks} ranks; the checks run on one\n",
                          self.run_dltrain("check", mixture, *settings, "--time", 1, code=None).out)
        self.assertRegex(self.run_dltrain("plan", "--help").out, r"(?s)data,\s+context,\s+expert,\s+tensor\s+and\s+pipeline")

    def test_keys_without_their_axis_are_warned_of(self):
        gpt, mixture = (SOURCES / f"tests/golden/language/{model}.yaml" for model in ("gpt2", "mixtral"))
        for keys, axis, settings, ranks in (
                (("context_method",), "context", "context_method: ring", 2),
                (("pipeline_stages",), "pipeline", "pipeline_stages: [h.1.ln_1]", 2),
                (("pipeline_schedule",), "pipeline", "pipeline_schedule: zero_bubble", 2),
                (("pipeline_schedule", "virtual_stages"), "pipeline", "pipeline_schedule: interleaved, virtual_stages: 2", 2),
                (("expert_buffer",), "expert", "expert_buffer: 2", 2)):
            config = mixture if axis == "expert" else gpt
            alone = self.run_dltrain("plan", config, "-s", f"parallelism={{{settings}}}").out
            self.assertEqual(re.findall(r"^warning: (.* has no effect .*)$", alone, re.M),
                             [f"parallelism.{key} has no effect with {axis}: 1; it needs {axis} of 2 or more" for key in keys])
            several = (config, "-s", f"parallelism={{{settings}, {axis}: {ranks}}}")
            self.assertNotIn("no effect", self.run_dltrain("plan", *several).out)
            if keys[0] in ("context_method", "pipeline_stages"):  # the checks run on one rank
                self.assertNotIn("no effect", self.run_dltrain("check", *several, "--time", 1, code=None).out)

    def test_messages_of_layouts_name_the_way_out(self):
        mixture = SOURCES / "tests/golden/language/mixtral.yaml"
        fixed = ("plan", mixture, "-s", "training.reduction=fixed")
        ways = "are not added in the order of reduction: fixed, which works over data and pipeline ranks; take %s, or reduction: fast"
        self.refused(USAGE, *fixed, "-s", "parallelism.tensor=2", says=ways % "tensor: 1")
        self.refused(USAGE, *fixed, "-s", "parallelism.expert=2", says=ways % "expert: 1")
        self.refused(USAGE, *fixed, "-s", "parallelism={tensor: 2, zero_stage: 1}", says=ways % "zero_stage: 0 and tensor: 1")
        gpt = ("plan", SOURCES / "tests/golden/language/gpt2.yaml")
        batch = ("-s", "training.global_batch_size=8", "-s", "parallelism.tensor=2")
        self.refused(USAGE, *gpt, *batch, "--world", 6,
                     says="a global batch of 8 cannot be shared evenly by 3 data-parallel ranks; 6 and 9 would fit, and 8 would fit 2 data-parallel ranks")
        self.refused(USAGE, *gpt, *batch, "--world", 4, "-s", "training.micro_batch_size=8", says="(8 / 2 data-parallel ranks)")
        self.refused(USAGE, *gpt, "-s", "parallelism.context=2", "-s", "evaluation.predictions=4", says="predictions need the full samples on one rank")

    def test_a_misspelt_flag_is_told_before_what_lacks(self):
        for command, says in ((("predict", "run", "new.csv", "--ouput", "x.csv"), "unknown argument --ouput; did you mean --output?"),
                              (("score", "--precison", "f32"), "unknown argument --precison; did you mean --precision?")):
            self.refused(USAGE, *command, says="dltrain: error: " + says)

    def test_the_rows_of_a_plan_are_in_the_order_of_the_layers(self):
        layers = "[{linear: 8}, relu, {linear: 8}, relu, dropout: 0.1, {linear: 8}, gelu, {linear: 4}]"
        rows = re.findall(r"(?m)^  layers\.(\d+) ", self.run_dltrain("plan", self.small(), "-s", f"model.layers={layers}").out)
        self.assertEqual(rows, sorted(rows), rows)

    def test_what_training_refuses_the_plan_refuses(self):
        self.refused(USAGE, "plan", self.small(), "-s", "model.layers=[{linear: {out_features: 4, bias: false}}]", "-s",
                     "model.final_bias_from_data=true", says="the model does not end in a bias of 4 values; give its last layer a bias")
        for layout in ("tensor=2", "pipeline=2", "data=2"):
            self.refused(USAGE, "plan", self.small(), "--world", 2, "-s", f"parallelism.{layout}", "-s", "training.optimizer_in_backward=true",
                         "-s", "training.max_grad_norm=null", says="works on one rank only")

    def test_the_plan_has_the_memory_of_ranks_with_smaller_shards(self):
        gpt = SOURCES / "tests/golden/language/gpt2.yaml"
        even = self.run_dltrain("plan", gpt, "-s", "parallelism.tensor=2", "-s", "model.vocab_size=64").out
        self.assertNotIn("last tensor rank", even)
        uneven = self.run_dltrain("plan", gpt, "-s", "parallelism.tensor=2", "-s", "model.vocab_size=65").out
        most = int(re.search(r"total .* (\d+) bytes are allocated", uneven)[1])
        self.assertLess(int(re.search(r"last tensor rank .* (\d+) bytes: ", uneven)[1]), most)
        stages = self.run_dltrain("plan", gpt, "-s", "parallelism={tensor: 2, pipeline: 2}", "-s", "model.vocab_size=65").out
        self.assertRegex(stages, r"(?m)^ +0 .* \d+-\d+$")

    def test_the_plan_has_the_memory_of_ranks_with_other_blocks_of_keys(self):
        config = self.write("long.yaml", """
            name: long
            model: {type: gpt2, num_layers: 2, hidden_size: 48, num_heads: 3, max_positions: 512, vocab_size: 50}
            data: {type: synthetic_tokens, vocab_size: 50, length: 512, samples: 16}
            optimizer: {type: adamw, learning_rate: 1e-3}
            training: {global_batch_size: 8, max_steps: 2}
            parallelism: {context: 4}
        """)
        said = self.run_dltrain("plan", config).out
        first = int(re.search(r"total .* (\d+) bytes are allocated", said)[1])
        least, most = map(int, re.search(r"context ranks .* (\d+) to (\d+) bytes: ", said).groups())
        self.assertTrue(least <= first <= most and least < most, said)
        self.assertNotIn("context ranks ", self.run_dltrain("plan", config, "-s", "parallelism.context=1").out)

    def test_the_plan_for_a_gpu_that_is_not_here_estimates_its_step(self):
        small, bf16 = self.small(), ["-s", "precision.compute=bf16"]
        out = self.run_dltrain("plan", small, "--gpu", "H100", *bf16).out
        self.assertIn("device: h100-80g (described)", out)
        self.assertRegex(out, r"(?m)^  step \d+\.\d\d ms, \d+ samples/s, MFU \d+\.\d %\n  memory \d+\.\d of 79\.2 GiB.*: fits$")
        self.assertRegex(out, r"(?m)^  matmul, rows not of 16 bytes +\d+ +\d+\.\d{3} .* launch$")
        lines = self.run_dltrain("plan", small, "--gpu", "all", *bf16).out.splitlines()
        self.assertEqual([line.split()[0] for line in lines], "GPU h100-80g h200 a100-80g a100-40g l4 rtx4090 t4".split())
        self.assertIn("t4            does not compute in bf16", lines[-1])
        self.assertIn("layers.0: 12 inputs, no multiple of 8 (16 bytes of bf16): 16, or 64", out)
        self.assertRegex(out, r"(?m)^  16 x 24 x 12 bf16 +1 +\d+\.\d{3} +1 +0\.01 +\d\.\d$")
        wide = ["-s", "model.layers=[{linear: 8192}, relu, {linear: 8192}, relu, {linear: 4}]", "-s", "training.global_batch_size=4096"]
        advice = r"(?m)^  precision\.matmul=tf32 would make the step \d+\.\d\d ms shorter"
        self.assertRegex(self.run_dltrain("plan", small, "--gpu", "a100", *wide).out, advice)
        tf32 = ["-s", "precision.matmul=tf32"]
        for arguments in (("a100", *wide, *tf32), ("a100", *wide, *bf16), ("t4", *wide)):
            self.assertNotIn("tf32 would", self.run_dltrain("plan", small, "--gpu", *arguments).out)
        self.refused(USAGE, "plan", small, "--gpu", "t4", *tf32, says="t4 does not compute in tf32 (precision.matmul)")
        self.assertIn("galore_projection", self.run_dltrain("plan", small, "--gpu", "h100", "-s", "optimizer.galore=2").out)
        self.refused(USAGE, "plan", small, "--gpu", "t4", *bf16, says="t4 does not compute in bf16")
        self.refused(USAGE, "plan", small, "--gpu", "h10", says="--gpu h10: there is no such GPU (did you mean h100-80g?); give h100-80g, h200")
        self.refused(USAGE, "plan", small, "--gpu", "h100", "--flops", "1e12", says="--flops")
        ranks = self.run_dltrain("plan", small, "--gpu", "h100", "--world", 2).out
        self.assertIn("estimate at the times of h100-80g and", ranks)

    def test_a_gpu_may_be_described_by_a_file(self):
        small = self.small()
        text = "name: mine\nmemory_bytes: 2147483648\nmultiprocessors: 20\nbytes_per_second: 1.0e11\nflops_f32: 1.0e12\n" \
               "peak_flops_f32: 2.0e12\npeak_flops_16: 2.0e12\nlaunch_seconds: 1.0\n"
        out = self.run_dltrain("plan", small, "--gpu", self.write("mine.yaml", text)).out
        self.assertRegex(out, r"estimate for mine.*\n  step \d{5,}\.")  # a second for every kernel
        self.refused(USAGE, "plan", small, "--gpu", self.write("wrong.yaml", text + "flop_bf16: 1\n"), says="wrong.yaml:9:1")
        self.refused(USAGE, "plan", small, "--gpu", self.write("short.yaml", "name: short\n"), says="memory_bytes")

    def test_commands_for_one_rank_are_refused_in_several(self):
        ranks = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        for command in (["check", self.small()], ["data", "inspect", self.small()], ["generate", self.folder], ["init", "mlp"]):
            self.refused(USAGE, *command, says=f"`dltrain {command[0]}` runs on one rank", env=ranks)
        self.run_dltrain("version", env=ranks)

    def test_a_file_that_describes_a_model_is_told_from_an_experiment(self):
        self.refused(USAGE, "plan", SOURCES / "configs/models/gpt2.yaml", says="describes a model, not an experiment: `model: {type: gpt2}`")

    def test_a_limit_of_file_sizes_is_a_failed_write(self):
        result = subprocess.run(["bash", "-c", f"ulimit -f 2; exec {PROGRAM} {self.small()} -q --output-dir {self.folder / 'run'}"],
                                capture_output=True, text=True)
        self.assertEqual(result.returncode, STORAGE, result.stderr)
        self.assertIn("File too large", result.stderr)

    def test_the_plan_prints_the_graph_after_each_pass(self):
        out = self.run_dltrain("plan", "--passes", "--world", 2, self.small()).out
        passes = ["emit", "reverse", "chunk_loss", "update", "dead_code", "fuse", "data_parallel", "remove_copies", "pack_updates"]
        self.assertEqual(re.findall(r"(?m)^after (\w+):$", out), passes)
        parts = re.split(r"(?m)^after \w+:$", out)
        self.assertNotIn("backward:", parts[1])
        self.assertIn("_backward(", parts[2])
        self.assertIn("adamw_update", parts[4])
        self.assertNotIn("all_reduce", parts[6])
        self.assertIn("all_reduce", parts[7])

    def test_a_dry_run_prints_configuration_and_plan_and_writes_nothing(self):
        out = self.run_dltrain(self.small(), "--dry-run", "--output-dir", self.folder / "run", "-s", "optimizer.learning_rate=0.125").out
        self.assertIn("learning_rate: 0.125", out)
        self.assertIn("bytes are allocated", out)
        self.assertIn("would start a new run in", out)
        self.assertFalse((self.folder / "run").exists())

    def test_a_dry_run_checks_how_the_run_would_begin(self):
        run, other = self.folder / "run", self.folder / "other"
        self.run_dltrain(self.small(), "-q", "--output-dir", run, "--max-steps", 10)
        self.refused(USAGE, self.small(), "--dry-run", "--output-dir", run, says="already contains a run")
        for resume in ("auto", run):
            out = self.run_dltrain(self.small(), "--dry-run", "--output-dir", run, "--resume", resume).out
            self.assertIn("step-000010, step 10, in", out)
        self.refused(USAGE, self.small(), "--dry-run", "--output-dir", other, "--resume", run, "--seed", 9, says="was saved with seed 7")
        self.refused(STORAGE, self.small(), "--dry-run", "--output-dir", other, "--resume", self.folder, says="contains no checkpoint")
        self.refused(USAGE, self.small(), "--dry-run", "--output-dir", other, "--log-level", "loud", says="unknown log level 'loud'")
        self.assertFalse(other.exists())

    def test_the_resolved_configuration_alone_is_a_configuration(self):
        text = self.run_dltrain(self.small(), "--print-config", "--max-steps", 3).out
        again = self.run_dltrain(self.write("again.yaml", text), "--print-config").out
        self.assertEqual(again, text)
        self.assertIn("max_steps: 3", text)

    def test_the_configuration_of_a_run_means_the_same_from_another_folder(self):
        self.write("data.csv", "".join(f"{i % 7},{i % 3}\n" for i in range(60)))
        self.write("here.yaml", SMALL.replace("shape: [12], classes: 4, samples: 100, shuffle: true", "path: data.csv")
                   .replace("shape: [12], classes: 4, samples: 40, seed: 1", "path: ./data.csv").replace("synthetic", "csv"))
        self.run_dltrain("here.yaml", "-q", "--output-dir", "a", cwd=self.folder)
        config = (self.folder / "a" / "config.yaml").read_text()
        self.assertEqual(config.count(f"path: {self.folder / 'data.csv'}"), 2, config)
        self.run_dltrain(self.folder / "a" / "config.yaml", "-q", "--output-dir", self.folder / "b")
        self.assert_same_state(self.folder / "a", self.folder / "b")

    def test_eval_measures_what_the_run_measured(self):
        run = self.folder / "run"
        self.run_dltrain(self.small(), "-q", "--output-dir", run)
        at_end = [line for line in support.metrics(run) if "eval_loss" in line][-1]
        for arguments in ([], [self.folder / "small.yaml"]):
            result = self.folder / "eval.json"
            self.run_dltrain("eval", *arguments, "--checkpoint", run, "--result", result)
            found = json.loads(result.read_text())
            self.assertEqual((found["step"], found["samples"]), (40, 40))
            for name in ("eval_loss", "eval_accuracy"):
                self.assertAlmostEqual(found[name], at_end[name], delta=1e-8)

    def test_the_resolved_configuration_trains_the_same_run(self):
        self.run_dltrain(self.small(), "-q", "--output-dir", self.folder / "a", "--seed", 3)
        self.run_dltrain(self.folder / "a" / "config.yaml", "-q", "--output-dir", self.folder / "b")
        self.assert_same_state(self.folder / "a", self.folder / "b")
        self.assertEqual((self.folder / "a" / "config.yaml").read_text(), (self.folder / "b" / "config.yaml").read_text())

    def test_saved_weights_are_a_starting_point_by_name(self):
        self.run_dltrain(self.small(), "-q", "--output-dir", self.folder / "a")
        model = self.folder / "a" / "checkpoints" / "latest" / "model.safetensors"
        self.assertEqual({name: (dtype, shape) for name, (dtype, shape, _) in safetensors(model).items()},
                         {"layers.0.weight": ("F32", [24, 12]), "layers.0.bias": ("F32", [24]),
                          "layers.3.weight": ("F32", [4, 24]), "layers.3.bias": ("F32", [4])})
        self.run_dltrain(self.small(), "-q", "--output-dir", self.folder / "b", "-s", f"model.init_from={model}",
                         "-s", "optimizer={type: sgd, learning_rate: 1.0e-30, weight_decay: 0}", "--max-steps", 1)
        self.assertEqual(safetensors(self.folder / "b" / "checkpoints" / "latest" / "model.safetensors"), safetensors(model))

    def test_the_log_has_a_line_every_logging_steps_and_pipes_follow(self):
        run = self.folder / "run"
        said = self.run_dltrain(self.small(), "--output-dir", run, "-s", "logging.logging_steps=20").err
        lines = re.findall(r"(?m)^train +\d+% (\d+)/40  loss \d", said)
        self.assertEqual(lines, ["1", "20", "40"], said)
        log = (run / "log.txt").read_text()
        self.assertEqual(re.findall(r"info +train +\d+% (\d+)/40  loss \d", log), lines)
        self.assertNotIn(" left", re.search(r"(?m)^train.* 1/40.*$", said)[0])
        self.assertRegex(said, r"(?m)^40 steps in \d+\.\d s \(\d+\.\d+ ms a step, fastest \d+\.\d+\), peak memory \d+ MiB$")

    def test_the_plan_folds_equal_blocks_and_lists_all_inputs(self):
        text = ("name: g\nmodel: {type: gpt2, num_layers: 3, hidden_size: 16, num_heads: 2, max_positions: 8}\n"
                "data: {type: synthetic_tokens, vocab_size: 9, length: 8, samples: 20}\n"
                "optimizer: {type: adamw, learning_rate: 1e-3}\ntraining: {global_batch_size: 2, max_steps: 2}\n")
        plan = self.run_dltrain("plan", self.write("gpt.yaml", text)).out
        table = plan[plan.index("layers"):plan.index("memory of")].splitlines()[1:]
        self.assertEqual(len({len(line) for line in table}), 1, plan)
        self.assertEqual(sum(line.startswith("  h.0-2.") for line in table), 8, plan)
        self.assertIn("h.0-2.ln_1 (x3)", plan)
        found = [int(re.search(r"  +(\d+)  +[\d.]+ [KM]?i?B ", line)[1]) for line in table[1:]]
        self.assertEqual(sum(found[:-1]), found[-1])
        self.assertEqual(found[-1], int(re.search(r"model: (\d+) parameters", plan)[1]))
        self.assertRegex(plan, r"model: \d+ parameters, input i32\[2, 8\] → output f32\[2, 8, 9\]")

    def test_quiet_runs_say_nothing_and_others_end_with_where_to_look(self):
        loud = self.run_dltrain(self.small(), "--output-dir", self.folder / "a")
        self.assertIn(f"run folder: {self.folder / 'a'}", loud.err)
        quiet = self.run_dltrain(self.small(), "-q", "--output-dir", self.folder / "b")
        self.assertEqual((quiet.out, quiet.err), ("", ""))
        self.assertIn("run folder:", (self.folder / "b" / "log.txt").read_text())


class Check(support.DltrainTest):
    def results(self, *arguments, code=OK):
        out = self.run_dltrain("check", *arguments, code=code).out
        *lines, summary = out.splitlines()
        lines = [line for line in lines if not line.startswith("NOTE  ")]
        found = dict(reversed(line.split(":", 1)[0].split("  ", 1)) for line in lines)
        passed = list(found.values()).count("PASS")
        self.assertTrue(summary.startswith(f"{passed} of {len(found)} checks passed"), summary)
        for word, told in (("FAIL", "failed"), ("SKIP", "skipped")):
            names = [name for name, value in found.items() if value == word]
            self.assertEqual(f"; {told}: {', '.join(names)}" in summary, bool(names), summary)
        if code is not None:
            self.assertEqual(set(found.values()) - {"SKIP"}, {"PASS"} if code == OK else {"PASS", "FAIL"}, out)
        return found

    def test_check_passes_on_the_mlp_recipe(self):
        found = self.results(SOURCES / "configs/recipes/digits-mlp.yaml")
        self.assertEqual(list(found), ["configuration", "data and targets", "unused parameters", "loss at init", "dead activations",
                                       "target leak", "samples are independent", "gradient check", "kernels", "overfit one batch",
                                       "inputs matter", "update sizes", "resume is bit-exact"])

    def test_check_passes_on_the_convnet_recipe(self):
        self.results(SOURCES / "configs/recipes/digits-convnet.yaml")

    def test_checks_that_lack_the_time_are_named(self):
        big = self.write("big.yaml", """
model: {type: gpt2, num_layers: 2, hidden_size: 384, num_heads: 4}
data: {type: synthetic_tokens, vocab_size: 50, length: 128, samples: 32}
optimizer: {type: adamw, learning_rate: 1.0e-3}
training: {global_batch_size: 2, max_steps: 2}
""")
        found = self.results(big, "--time", 1, code=None)
        self.assertEqual(found["gradient check"], "SKIP")
        self.refused(USAGE, "check", big, "--time", 0, says="--time")

    def test_trained_weights_may_begin_with_a_lower_loss(self):
        run = self.folder / "run"
        self.run_dltrain(self.small(), "-q", "--output-dir", run, "--max-steps", 100)
        self.assertEqual(self.results(self.small(), "-s", f"model.init_from={run}", code=None)["loss at init"], "PASS")

    def test_check_fails_on_what_cannot_learn(self):
        still = self.results(self.small(), "-s", "optimizer.learning_rate=1.0e-12", code=CHECK)
        self.assertEqual([name for name, word in still.items() if word == "FAIL"], ["overfit one batch", "inputs matter"])
        loud = self.write("loud.yaml", SMALL.replace("shape: [12], classes: 4, samples: 100", "shape: [12], noise: 200, classes: 4, samples: 100"))
        self.assertEqual(self.results(loud, code=CHECK)["loss at init"], "FAIL")


class Accuracy(support.DltrainTest):
    def accuracy(self, recipe, *arguments):
        result = self.folder / "result.json"
        self.run_dltrain(SOURCES / "configs" / "recipes" / f"{recipe}.yaml", "-q", "--overwrite", "--output-dir", self.folder / recipe,
                         "--result", result, *arguments)
        return json.loads(result.read_text())["eval_accuracy"]

    def mean_of_five_seeds(self, recipe, least, *arguments):
        found = [self.accuracy(recipe, "--seed", seed, *arguments) for seed in range(5)]
        print(f"{recipe} {' '.join(arguments)}: {', '.join(f'{a:.4f}' for a in found)}; mean {sum(found) / 5:.4f}")
        self.assertGreaterEqual(sum(found) / 5, least)
        return sum(found) / 5

    def test_a_short_mlp_run_on_the_digits_already_reads_most_of_them(self):
        self.assertGreaterEqual(self.accuracy("digits-mlp", "--max-steps", 300), 0.93)

    def test_a_short_convnet_run_on_the_digits_already_reads_most_of_them(self):
        self.assertGreaterEqual(self.accuracy("digits-convnet", "--max-steps", 100), 0.93)

    def test_short_bf16_and_fp16_runs_on_the_digits_already_read_most_of_them(self):
        for precision in ("bf16", "fp16"):
            found = self.accuracy("digits-convnet", "--max-steps", 100, "-s", f"precision.compute={precision}")
            self.assertGreaterEqual(found, 0.93, precision)

    def test_long_bf16_and_fp16_read_the_digits_as_f32_does_within_1_percent(self):
        for recipe, least in (("digits-mlp", 0.97), ("digits-convnet", 0.98)):
            wide = self.mean_of_five_seeds(recipe, least)
            for precision in ("bf16", "fp16"):
                low = self.mean_of_five_seeds(recipe, least, "-s", f"precision.compute={precision}")
                self.assertLessEqual(abs(low - wide), 0.01, precision)

    def test_long_the_mlp_reads_97_percent_of_the_digits_over_five_seeds(self):
        self.mean_of_five_seeds("digits-mlp", 0.97)

    def test_long_the_convnet_reads_98_percent_of_the_digits_over_five_seeds(self):
        self.mean_of_five_seeds("digits-convnet", 0.98)


if __name__ == "__main__":
    support.main()
