"""The parts of scripts/gpu_check.py: which jobs each has, and what a job must have shown."""
import dataclasses
import functools
import glob
import hashlib
import json
import os
import pathlib
import shutil
import typing

SKIPPED = 77  # the exit status of a job that cannot run on this machine

# The share of the remaining time that each part gets.
SHARES = {"device": 25, "speed": 130, "ops": 80, "trajectories": 60, "repeat": 60, "autotune": 50, "gemm": 45, "variants": 50,
          "sanitizer": 60, "ranks": 30, "texts": 20}

# The target configurations of configs/gpu: settings, units of the speed, the number of them in a sample, and the goal
# per second on an H100 (issue: first contact with a GPU).
GPT2 = ("tokens", 1024, 560e3)
PADDED = ["model.vocab_size=50304", "data.train.vocab_size=50304"]
TARGETS = {
    "gpt2_124m_b64": ("gpt2_124m", [], *GPT2),
    "resnet50": ("resnet50", [], "images", 1, 5.5e3),
    "bert_large": ("bert_large", [], "sequences", 1, 430),
    "gpt2_xl": ("gpt2_xl", [], "tokens", 1024, 55e3),
    "qwen2_5_1_5b": ("qwen2_5_1_5b", [], "tokens", 1024, 60e3),
    "qwen2_5_1_5b_fp8": ("qwen2_5_1_5b", ["precision.fp8.recipe=delayed"], "tokens", 1024, 73e3),
    "char_lstm": ("char_lstm", [], "tokens", 128, None),
    "gpt2_124m_b16": ("gpt2_124m_b16", [], *GPT2),
    "bert_large_dropout": ("bert_large", ["model.dropout=0.1"], "sequences", 1, 430),
    "gpt2_124m_b64_50304": ("gpt2_124m", PADDED, *GPT2),
    "gpt2_124m_b16_50304": ("gpt2_124m_b16", PADDED, *GPT2),
}
# The rehearsal without a GPU makes each of them small.
SMALL_TEXT = ["data.train.samples=8", "data.train.length=8", "training.global_batch_size=2", "model.vocab_size=61", "data.train.vocab_size=61"]
SMALL_LAYERS = [*SMALL_TEXT, "model.num_layers=1", "model.hidden_size=32", "model.num_heads=2"]
SMALL = {
    "gpt2_124m": SMALL_LAYERS, "gpt2_124m_b16": SMALL_LAYERS, "gpt2_xl": SMALL_LAYERS, "bert_large": SMALL_LAYERS,
    "qwen2_5_1_5b": [*SMALL_LAYERS, "model.num_kv_heads=1", "model.intermediate_size=48"],
    "char_lstm": [*SMALL_TEXT, "model.hidden_size=24"],
    "resnet50": ["data.train.shape=[32, 32, 3]", "data.train.samples=4", "training.global_batch_size=2"],
}

# The kernel that each op of the targets must run by on sm_90: those of the vendor's libraries, and generated programs.
# Other ops may run by any kernel of their own dtype ("through f32" converts, which costs twice the memory traffic).
REQUIRED = {
    "cuda": {"matmul": "cuBLASLt", "matmul_gelu": "cuBLASLt", "matmul_gelu_backward": "cuBLASLt", "attention": "cuDNN",
             "attention_backward": "cuDNN", "conv2d": "cuDNN", "conv2d_backward_input": "cuDNN",
             "conv2d_backward_weight": "cuDNN", "fp8_matmul": "cuBLASLt", "recurrent_network": "cuDNN", "recurrent_network_backward": "cuDNN", "fused_elementwise": "NVRTC"},
    "cpu": {"attention": "blocks or through f32"},  # in 16 bits without AVX-512
}
# The ops that must be in the step: a pass that takes them apart, or leaves them apart, is a wrong kernel too.
PRESENT = {
    "resnet50": ("matmul", "conv2d_backward_input", "conv2d_backward_weight"), "char_lstm": ("recurrent_network", "recurrent_network_backward"),
    **{name: ("matmul", "attention", "attention_backward") for name in TARGETS if name.startswith(("qwen", "bert"))},
    "qwen2_5_1_5b_fp8": ("fp8_codes", "fp8_matmul", "matmul", "attention", "attention_backward"),
    **{name: ("matmul", "matmul_gelu", "matmul_gelu_backward", "attention", "attention_backward") for name in TARGETS if name.startswith("gpt2")},
}
NEVER = {"cuda": "through f32", "cpu": None}
VENDORS = "cuBLASLt,cuDNN,NVRTC"


class Wrong(Exception):
    """A job ran, but what it shows is wrong; `data` goes into the record all the same."""

    def __init__(self, text, data=None):
        super().__init__(text)
        self.data = data


class Skip(Wrong):
    """The machine has not what the job needs."""


@dataclasses.dataclass
class Job:
    name: str
    command: list  # "{out}" is the job's folder
    limit: float = 60  # seconds
    check: typing.Callable = None  # (folder, log) -> what the record keeps; raises Wrong
    environment: dict = dataclasses.field(default_factory=dict)
    statuses: tuple = (0,)
    needs: tuple = ()  # jobs of the same part whose folders it reads
    rest: typing.Callable = None  # of a failed job's data: arguments for one more run, whose data add_cases adds


def read_lines(path):
    """The JSON objects of a file of lines; the last may be torn where its writer was killed."""
    out = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        try:
            out.append(json.loads(line))
        except ValueError:
            pass
    return out


def lines_of(out, _log):
    return read_lines(out / "lines.jsonl")


def cases_of(out, _log):
    """{op: {kernel: {dtype: [runs, failed, worst part of the tolerance]}}}, the faults, and the case after which there are none."""
    ops, faults, last, device = {}, [], None, None
    for line in lines_of(out, None):
        device = line.get("device", device)
        if "begins" in line or "ended" in line:
            last = line
        elif "case" in line:
            row = ops.setdefault(line["op"], {}).setdefault(line["kernel"], {}).setdefault(line["dtype"], [0, 0, 0])
            row[0], row[1], row[2] = row[0] + 1, row[1] + bool(line["fault"]), max(row[2], line["worst"] or 0)
            if line["fault"] and len(faults) < 20:
                faults.append(line)
    return {"device": device, "ops": ops, "faults": faults, "lost_at": last if last and "begins" in last else None}


def other_ops(data):
    """Arguments that run the group without the op that ended its process: a crash, or an error that CUDA keeps."""
    return ["--skip", data["lost_at"]["op"]] if data and data["lost_at"] else None


def add_cases(data, more):
    """Puts the cases of such a run beside those before."""
    for op, kernels in more["ops"].items():
        data["ops"].setdefault(op, kernels)
        for kernel, dtypes in kernels.items():
            data["ops"][op].setdefault(kernel, dtypes).update(dtypes)
    data["faults"] += more["faults"]
    data["rest_ended"] = more["lost_at"] is None


def messages_of(out, log):
    for row in lines_of(out, log):
        if "not_checked" in row:
            raise Skip(row["not_checked"])
    return lines_of(out, log)


def timings_of(out, log):
    rows = lines_of(out, log)
    faults = [f"{row['op']} by {row['kernel']}: {row['fault']}" for row in rows if row.get("fault")]
    if faults or not any("ms" in row for row in rows):
        raise Wrong("; ".join(faults) or "nothing was timed", rows)
    return rows


def wrong_kernels(engine, target, rows, tuned=False):
    """Sentences about ops of a profile that ran by another kernel than they must; autotune may choose the parts of an op."""
    required, wrong = REQUIRED[engine], []
    for row in rows:
        op, kernel = row["name"], row.get("detail", "")
        if op in required and kernel not in required[op].split(" or "):
            wrong.append(f"{op} by {kernel} ({row['calls']:g} calls) instead of {required[op]}")
        elif op not in required and kernel == NEVER[engine]:
            wrong.append(f"{op} by {kernel} ({row['calls']:g} calls)")
    found = {row["name"] for row in rows}
    return wrong + [f"no {op} in the step" for op in PRESENT[target] if engine == "cuda" and not tuned and op not in found]


def by_shape(calls):
    """Rows of calls without their layers: those of one op and shape are one row."""
    rows = {}
    for call in calls:
        key = call["name"].split()[-1], call.get("detail", "")
        row = rows.setdefault(key, {"name": key[0], "detail": key[1], "calls": 0, "ms": 0, "flops": 0, "bytes": 0})
        for name in ("calls", "ms", "flops", "bytes"):
            row[name] += call[name]
    return sorted(rows.values(), key=lambda row: -row["ms"])


def profile_of(check, target, tuned=False):
    """Speed and kernels of a target."""
    _, _, unit, units, goal = TARGETS[target]
    if check.engine == "cpu":  # of another size
        unit, units, goal = "samples", 1, None

    def read(out, log):
        profile = json.loads((out / "profile.json").read_text())
        rate = profile["samples_per_step"] * units / (profile["step_ms"] * 1e-3)
        data = {key: profile.get(key) for key in ("device", "method", "limits", "step_ms", "observed_step_ms", "mfu", "shares_ms")}
        data.update(target=target, unit=unit, rate=rate, goal=goal, ops=profile["ops"], calls=by_shape(profile["calls"])[:15])
        data["warnings"] = [line[:500] for line in log.splitlines() if "warning" in line.lower()][:10]  # refusals of libraries too
        wrong = wrong_kernels(check.engine, target, profile["ops"], tuned)
        if wrong:
            raise Wrong("; ".join(wrong), data)
        return data
    return read


def losses(run):
    return {line["step"]: line["loss"] for line in read_lines(run / "metrics.jsonl") if "step" in line and "loss" in line}


def same_curve(expected, found, tolerance):
    """The largest relative difference. `tolerance` holds for the first loss and for the others; 0 is equality."""
    if not expected:
        raise Skip("the run that it is compared with has failed")
    if expected.keys() != found.keys():
        raise Wrong(f"different steps: {len(expected)} and {len(found)}")
    first, rest = tolerance
    worst, bad = 0.0, None
    for index, step in enumerate(sorted(expected)):
        difference = abs(found[step] - expected[step]) / max(abs(expected[step]), 1e-30)
        worst = max(worst, difference) if difference == difference else float("inf")
        if not difference <= (rest if index else first):
            bad = bad or step
    if bad is not None:
        raise Wrong(f"loss {found[bad]} at step {bad}, expected {expected[bad]}; largest difference {worst:.3g}", {"worst": worst})
    return {"losses": len(expected), "worst": worst, "allowed": max(tolerance)}


def state_hash(run):
    return [hashlib.sha256((run / "checkpoints" / "latest" / name).read_bytes()).hexdigest()
            for name in ("model.safetensors", "optimizer.safetensors")]


def same_bits(other):
    """The losses and the state of the job's run equal those of the run `other`."""
    def read(out, _log):
        data = same_curve(losses(other), losses(out / "run"), (0, 0))
        if state_hash(other) != state_hash(out / "run"):
            raise Wrong("the losses are equal, parameters or optimizer state are not", data)
        return data
    return read


def text_config(check, name, model, data="shuffle: false"):
    """The path of a configuration of a small model on recorded token ids."""
    path = check.work / "configs" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"""name: {name}
model: {model}
data: {{type: tokens, path: tests/golden/recurrent/tokens.bin, sequence_length: 12, random_offset: false, {data}, train: {{}}}}
optimizer: {{type: adamw, learning_rate: 3.0e-3, weight_decay: 0.01}}
training: {{global_batch_size: 4, max_steps: 20, max_grad_norm: 1.0}}
logging: {{logging_steps: 1}}
""")
    return path


def cell_model(cell, carried="false"):
    return (f"{{type: char_lstm, cell: {cell}, hidden_size: 24, carry_state: {carried}, vocab_size: 29, "
            f"init_from: tests/golden/recurrent/{cell}.safetensors}}")


def curve_runs(check):
    """{name: (arguments of train, tolerances of the first and of the other losses)}. Smooth networks agree to 1e-5 over 20
    steps; networks with ReLU are chaotic: one ReLU of another sign changes the third loss by half a percent."""
    runs = {}
    for path in sorted(glob.glob("tests/golden/*/*.yaml", root_dir=check.root)):
        family, stem = pathlib.Path(path).parent.name, pathlib.Path(path).stem
        smooth = "gelu" in stem or family == "language"
        runs[f"{family}-{stem}"] = [path], (1e-5, 1e-5) if smooth else (2e-6, 1e-2)
    for cell in ("lstm", "gru", "rnn"):
        runs[f"{cell}-carried"] = [text_config(check, f"{cell}-carried", cell_model(cell, "true"), "sampling: streams")], (1e-5, 1e-5)
    lstm, gpt2 = text_config(check, "lstm", cell_model("lstm")), "tests/golden/language/gpt2.yaml"
    runs["lstm"] = [lstm], (1e-5, 1e-5)
    for name, config in (("lstm", lstm), ("gpt2", gpt2)):
        runs[f"{name}-bf16"] = [config, "-s", "precision.compute=bf16"], (0.1, 0.1)
    for name, recipe in (("gpt2-fp8", "delayed"), ("gpt2-fp8-blocks", "blockwise")):
        runs[name] = [gpt2, "-s", f"precision={{compute: bf16, fp8: {{recipe: {recipe}}}}}"], (0.1, 0.1)
    for name, rate in (("lars", 0.5), ("lamb", 1e-2), ("adafactor", 1e-2)):
        runs[name] = ["tests/golden/mlp/gelu-adamw.yaml", "-s", f"optimizer={{type: {name}, learning_rate: {rate}, weight_decay: 0.01}}"], (1e-5, 1e-5)
    return runs


def train(check, arguments, device=None, run="{out}/run"):
    return [check.dltrain, "train", *arguments, "--device", device or check.engine, "--output-dir", run, "--quiet"]


def record_curves(check, path):
    """The losses of every run of curve_runs on the CPU."""
    curves = {}
    for name, (arguments, _) in curve_runs(check).items():
        run = check.work / "curves" / name
        shutil.rmtree(run, ignore_errors=True)
        output = check.output(train(check, arguments, "cpu", run))
        curves[name] = losses(run)
        if not curves[name]:
            raise Wrong(f"{name} has no losses on the CPU: {output}")
    path.write_text(json.dumps({"version": check.output([check.dltrain, "version"]).split("\n")[0], "curves": curves}) + "\n")
    return 0


@functools.cache
def recorded_curves(check):
    """Those of the bundle; in the repository they are computed when they are first asked for."""
    path = check.root / "curves.json"
    if not path.exists():
        path = check.work / "curves.json"
        if not path.exists():
            record_curves(check, path)
    return {name: {int(step): loss for step, loss in curve.items()} for name, curve in json.loads(path.read_text())["curves"].items()}


def device_jobs(check):
    jobs = [Job("version", [check.dltrain, "version"], check=lambda _, log: log), Job("devices", [check.dltrain, "list", "devices"])]
    tool = shutil.which("nvidia-smi")
    jobs.append(Job("nvidia-smi", [tool] if tool else ["/bin/sh", "-c", f"echo not installed; exit {SKIPPED}"], 30, lambda _, log: log))
    return [*jobs, Job("ceilings", timing(check, "ceilings"), 60, timings_of)]


def timing(check, what, *arguments):
    return [*cases(check, "--time", what, *arguments), *(["--scale", 0.001] if check.engine == "cpu" else [])]


def cases(check, *arguments):
    return [check.gpu_check, "--engine", check.engine, "--lines", "{out}/lines.jsonl", *arguments]


def profile(check, target, *arguments):
    config, settings = TARGETS[target][:2]
    small = check.engine == "cpu"
    settings = [*settings, *(SMALL[config] if small else [])]
    return [check.dltrain, "profile", f"configs/gpu/{config}.yaml", "--device", check.engine, "--quiet",
            "--warmup", 1 if small else 5, "--steps", 1 if small else 10, "--output-dir", "{out}", "--result", "{out}/profile.json",
            *(word for setting in settings for word in ("-s", setting)), *arguments]


def speed_jobs(check):
    return [Job(target, profile(check, target), 90, profile_of(check, target)) for target in TARGETS]


def ops_jobs(check):
    groups = 12
    return [Job(f"group-{i}", cases(check, "--dtype", "f32,bf16,f16", "--group", f"{i}/{groups}"), 60, cases_of, rest=other_ops)
            for i in range(groups)]


def trajectory_jobs(check):
    def agrees(name, tolerance):
        return lambda out, _: same_curve(recorded_curves(check)[name], losses(out / "run"), tolerance)
    return [Job(name, train(check, arguments), 60, agrees(name, tolerance)) for name, (arguments, tolerance) in curve_runs(check).items()]


def repeat_jobs(check):
    """Two runs have the same bits, also one that is not captured (blocking launches) and one that is resumed."""
    runs = {"gpt2": ["tests/golden/language/gpt2.yaml"],
            "convnet": ["tests/golden/convnet/relu-adamw.yaml", "-s", "lr_scheduler=constant"],  # the half run has its rates
            "lstm": [text_config(check, "lstm", cell_model("lstm"))], "bert": ["tests/golden/language/bert.yaml"],
            "narrow": ["tests/golden/language/gpt2.yaml", "-s", "precision={compute: bf16, parameters: bf16}"]}
    jobs = []
    for name, arguments in runs.items():
        folder = check.work / "out" / f"repeat-{name}" / "run"
        half = check.work / "out" / f"repeat-{name}-half" / "run"
        jobs.append(Job(name, train(check, arguments)))
        jobs.append(Job(f"{name}-second", train(check, arguments), check=same_bits(folder), needs=(name,)))
        jobs.append(Job(f"{name}-not-captured", train(check, arguments), check=same_bits(folder), needs=(name,),
                        environment={"CUDA_LAUNCH_BLOCKING": "1"}))
        jobs.append(Job(f"{name}-half", [*train(check, arguments), "--max-steps", "10"]))
        jobs.append(Job(f"{name}-resumed", ["/bin/sh", "-c", f"cp -a {half} {{out}}/run && exec \"$@\"", "sh",
                                            *train(check, arguments), "--resume", "auto"], check=same_bits(folder),
                        needs=(name, f"{name}-half")))
    return jobs


def autotune_jobs(check):
    jobs = []
    for name, config in (("gpt2", "tests/golden/language/gpt2.yaml"), ("convnet", "tests/golden/convnet/relu-adamw.yaml")):
        folder = check.work / "out" / f"autotune-{name}" / "run"
        jobs.append(Job(name, train(check, [config, "--autotune", "quick"])))
        jobs.append(Job(f"{name}-second", train(check, [config, "--autotune", "quick"]), check=same_bits(folder), needs=(name,)))
    for target in ("gpt2_124m_b16", "resnet50", "bert_large", "char_lstm"):
        jobs.append(Job(target, profile(check, target, "--autotune", "quick"), 120, profile_of(check, target, tuned=True)))
    return jobs


def variant_jobs(check):
    """Own kernels where the vendor's are taken otherwise: their results, and the times of both."""
    own = cases(check, "--without", VENDORS, "--dtype", "f32,bf16,f16", "--op")
    groups = {"attention": "attention,attention_backward", "matmul": "matmul", "fused": "fused_elementwise",
              "convolution": "conv2d,conv2d_backward_input,conv2d_backward_weight",
              "recurrent": "recurrent_network,recurrent_network_backward"}
    jobs = [Job(f"own-{name}", [*own, ops], 60, cases_of) for name, ops in groups.items()]
    jobs.append(Job("times", timing(check, "variants"), 90, timings_of))
    return [*jobs, Job("ops", timing(check, "ops"), 60, timings_of)]


def sanitizer_jobs(check):
    tool = shutil.which("compute-sanitizer", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer")
    if check.engine != "cuda" or tool is None:
        return [Job("memcheck", ["/bin/sh", "-c", f"echo compute-sanitizer is not used here; exit {SKIPPED}"])]
    groups, jobs = 6, []
    for kind in ("memcheck", "racecheck", "initcheck"):
        for i in range(groups):
            jobs.append(Job(f"{kind}-{i}", [tool, "--tool", kind, "--error-exitcode", 9, *cases(
                check, "--without", VENDORS, "--dtype", "f32,bf16", "--group", f"{i}/{groups}")], 120, cases_of))
    return jobs


def rank_jobs(check):
    """Two ranks that share one GPU through host memory, in every ZeRO stage and with a fixed reduction, and NCCL in a group
    of one rank."""
    config, jobs = "tests/golden/language/gpt2.yaml", []
    folder = check.work / "out"
    two = ["-s", "parallelism.collectives=staged", "--nproc-per-node", "2"]
    fixed = [config, "-s", "training.reduction=fixed", "-s", "training.micro_batch_size=2"]
    if check.engine == "cuda":
        jobs.append(Job("nccl", cases(check, "--collectives"), 60, messages_of))
    jobs.append(Job("one", train(check, [config])))
    jobs.append(Job("fixed-one", train(check, fixed)))
    for stage in range(4):
        settings = [config, *two, "-s", f"parallelism.zero_stage={stage}", "-s", "parallelism.bucket_mb=0.05"]
        jobs.append(Job(f"zero-{stage}", train(check, settings), 60, lambda out, _:
                        same_curve(losses(folder / "ranks-one" / "run"), losses(out / "run"), (1e-5, 1e-5)), needs=("one",)))
    jobs.append(Job("fixed-two", train(check, [*fixed, *two]), 60, lambda out, _:
                    same_curve(losses(folder / "ranks-fixed-one" / "run"), losses(out / "run"), (0, 0)), needs=("fixed-one",)))
    return jobs


def text_jobs(check):
    """Greedy texts of trained models are the same on both devices, alone and in a batch; wrong requests are refused."""
    models = {"gpt": "{type: gpt2, num_layers: 2, hidden_size: 32, num_heads: 4, max_positions: 64, vocab_size: 29}",
              "llama": "{type: llama, num_layers: 2, hidden_size: 32, num_heads: 4, num_kv_heads: 2, intermediate_size: 48, vocab_size: 29}",
              "lstm": cell_model("lstm")}
    jobs, engine = [], check.engine
    for name, model in models.items():
        generate = f'"$0" generate {{out}}/run --tokens 1,2,3 --tokens 7,5 --tokens 4 --max-tokens 16 --temperature 0 --json --quiet'
        jobs.append(Job(name, ["/bin/sh", "-c", f"""'{check.dltrain}' train "$1" --device {engine} --output-dir {{out}}/run --quiet &&
            {generate} --device cpu >{{out}}/cpu.jsonl && {generate} --device {engine} >{{out}}/engine.jsonl &&
            {generate} --device {engine} --batch-size 1 >{{out}}/alone.jsonl &&
            cmp {{out}}/cpu.jsonl {{out}}/engine.jsonl && cmp {{out}}/engine.jsonl {{out}}/alone.jsonl""",
                               check.dltrain, text_config(check, f"text-{name}", model)]))
    mlp = "tests/golden/mlp/gelu-adamw.yaml"
    large = text_config(check, "too-large", "{type: char_lstm, hidden_size: 1000000, vocab_size: 29}")

    def says(words):
        def read(_out, log):
            if not any(word in log for word in words):
                raise Wrong(f"does not say '{words[0]}'", log[-500:])
        return read
    jobs.append(Job("no-such-gpu", train(check, [mlp], "cuda:99"), check=says(["GPU", "NVIDIA driver"]), statuses=(8,)))
    return [*jobs, Job("too-large", train(check, [large]), check=says(["needs"]), statuses=(5,))]


def parts(check):
    """{part: its jobs}, in the order in which they run."""
    return {"device": device_jobs(check), "speed": speed_jobs(check), "ops": ops_jobs(check), "trajectories": trajectory_jobs(check),
            "repeat": repeat_jobs(check), "autotune": autotune_jobs(check), "gemm": [Job("times", timing(check, "gemm"), 90, timings_of)],
            "variants": variant_jobs(check), "sanitizer": sanitizer_jobs(check), "ranks": rank_jobs(check), "texts": text_jobs(check)}
