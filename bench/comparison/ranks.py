"""Tasks 17 and 18 of docs/comparison.md: two ranks that share the state, or the matrices, of an MLP."""
# Task 17
import sys

import torch
import torch.distributed as dist
from table import Mlp, Table
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler

torch.manual_seed(0)
mesh = init_device_mesh("cpu", (2,))
data, net = Table(), Mlp().net
data.setup()
if sys.argv[1] == "fsdp":
    for layer in (net[0], net[3]):
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    sampler = DistributedSampler(data.train)
    loader = DataLoader(data.train, 16, sampler=sampler)
# Task 18
else:
    parallelize_module(net, mesh, {"0": ColwiseParallel(), "3": RowwiseParallel()})
    sampler = DistributedSampler(data.train, 1, 0)  # both ranks read the same samples
    loader = DataLoader(data.train, 32, sampler=sampler)
# Task 17
optimizer = torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=0.01)
for epoch in range(66):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
net.eval()
x, y = data.held.tensors
outputs = net(x)
if dist.get_rank() == 0:
    print(f"loss {loss.item():.4f}, held out {cross_entropy(outputs, y).item():.4f}, accuracy {(outputs.argmax(1) == y).float().mean():.4f}; "
          f"this rank has {net[0].weight.to_local().shape[0]} of {net[0].weight.shape[0]} rows")
dist.destroy_process_group()
