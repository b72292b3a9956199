"""Task 4 of docs/comparison.md: what goes wrong silently, before a long run."""
import math

import torch
from table import Mlp, Table
from torch.nn.functional import cross_entropy

torch.manual_seed(0)
data, model = Table(batch_size=32), Mlp()
data.setup()
x, y = next(iter(data.train_dataloader()))
print(f"loss at init {cross_entropy(model.net(x), y).item():.4f}, expected {math.log(len(data.classes)):.4f}")
dead = (model.net[:2](x) == 0).all(0).float().mean()
print(f"dead units {dead:.1%}")
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
model.eval()  # no dropout
for step in range(300):
    loss = cross_entropy(model.net(x[:8]), y[:8])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"overfit one batch: {loss.item():.4f}")
