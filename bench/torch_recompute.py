#!/usr/bin/env python3
"""Compares memory.recompute with PyTorch's memory-budget checkpointing on a case of torch_bench.py (docs/memory.md).

    bench/torch_recompute.py [--dltrain build/dltrain] [--case gpt_char] [--budgets 1 0.8 0.6 0.4 0.2 0]

For each activation_memory_budget, PyTorch compiles the model with torch.compile. Its peak is the memory that one step allocates from the
forward to the end of the backward: activations, temporaries and gradients, without parameters and moments. The FLOP are those of
matrix products and attention in the partitioned graphs. Beside them stands `memory.recompute: auto` with the greatest memory.budget whose
plan has at most PyTorch's peak, likewise without parameters and moments; a step allocates what is planned.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def causal_attention(q, *_, **__):
    """FLOP of the two products of causal attention, which skips half of them."""
    batch, heads, tokens, width = q
    return 2 * batch * heads * tokens * tokens * width


def torch_point(case, budget):
    """(peak in bytes, FLOP) of PyTorch."""
    import torch
    import torch._functorch.config
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table
    from torch._subclasses import FakeTensor
    from torch.utils.flop_counter import FlopCounterMode
    sys.argv = ["torch_bench.py", case]
    sys.path.insert(0, str(ROOT / "bench"))
    import torch_bench
    described = torch_bench.CASES[case]
    tokens, vocabulary = described["seq"], described["vocab"]
    ids = torch.randint(0, vocabulary, (described["batch"], tokens + 1))
    batch = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    torch._functorch.config.activation_memory_budget = budget
    make = described["make"]

    graphs = []

    def note(graph, inputs):
        graphs.append((graph, inputs))
        return graph.forward

    torch.compile(make(tokens, vocabulary), backend=aot_autograd(
        fw_compiler=note, bw_compiler=note, decompositions=select_decomp_table(),
        partition_fn=min_cut_rematerialization_partition))(*batch).backward()
    mapping = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: causal_attention,
               torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward:
                   lambda dy, q, *_, **__: 5 * causal_attention(q) // 2}
    with FlopCounterMode(display=False, custom_mapping=mapping) as counter:
        for graph, inputs in graphs:
            with next(i for i in inputs if isinstance(i, FakeTensor)).fake_mode:
                torch.fx.Interpreter(graph).run(*inputs)

    torch._dynamo.reset()
    model = torch.compile(make(tokens, vocabulary))
    model(*batch).backward()
    model.zero_grad(set_to_none=True)
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        model(*batch).backward()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(trace))
        events = [e["args"] for e in json.loads(trace.read_text())["traceEvents"] if e.get("name") == "[memory]"]
    before = events[0]["Total Allocated"] - events[0]["Bytes"]
    return max(e["Total Allocated"] for e in events) - before, counter.get_total_flops()


def own_point(dltrain, config, peak):
    """(MiB, FLOP over those without recomputation) of dltrain with at most so many MiB: a budget is a limit for the process."""
    def plan(*settings):
        result = subprocess.run([dltrain, "plan", config, *settings], capture_output=True, text=True)
        rows = [re.search(rf"(?m)^  {row} +([\d.]+) MiB", result.stdout) for row in ("total", "activations, workspaces")]
        return result.stdout, *(float(row[1]) if row else None for row in rows)

    said, total, work = plan("-s", "memory.recompute=none")
    if work <= peak:
        return work, 0.0
    state, best = total - work, None
    low, high = peak + state, peak + state + 200
    for _ in range(9):
        budget = (low + high) / 2
        said, total, work = plan("-s", "memory.recompute=auto", "-s", f"memory.budget={budget:.1f}MiB")
        if work is not None and work > peak:
            high = budget
            continue
        low = budget  # also where it is less than the least that is possible
        flops = re.search(r"run again, \+([\d.]+) % FLOP", said)
        if work is not None and flops:
            best = min(best or (work, 1e9), (work, float(flops[1]) / 100), key=lambda point: point[1])
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dltrain", default=str(ROOT / "build" / "dltrain"))
    parser.add_argument("--case", default="gpt_char")
    parser.add_argument("--budgets", nargs="*", type=float, default=[1, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0])
    parser.add_argument("--point", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.point is not None:
        print(*torch_point(arguments.case, arguments.point))
        return
    config = str(ROOT / "configs" / "bench" / f"{arguments.case}.yaml")
    print("  budget  PyTorch: peak    FLOP   dltrain: peak    FLOP")
    least = None
    for budget in dict.fromkeys([1.0, *arguments.budgets]):  # a process for each, whose allocator is fresh
        command = [sys.executable, __file__, "--case", arguments.case, "--point", str(budget)]
        peak, flops = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-2:])
        least = least or flops
        own = own_point(arguments.dltrain, config, peak / 2**20)
        mine = f"{own[0]:9.1f} MiB  {own[1]:+6.1%}" if own else f"{'none':>13}"
        print(f"  {budget:6}  {peak / 2**20:9.1f} MiB  {flops / least - 1:+6.1%}  {mine}", flush=True)


if __name__ == "__main__":
    main()
