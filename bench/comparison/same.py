"""Task 9 and 15 of docs/comparison.md: whether two checkpoints of Lightning have the same weights to the bit."""
import sys

import torch

a, b = (torch.load(path, weights_only=False)["state_dict"] for path in sys.argv[1:3])
same = a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)
sys.exit(print("bit-identical" if same else "different") or not same)
