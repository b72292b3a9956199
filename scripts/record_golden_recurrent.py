#!/usr/bin/env python3
"""Records small recurrent language models of PyTorch: an LSTM on independent sequences, and an LSTM, a GRU and an RNN
that carry their state from batch to batch (truncated back-propagation, as PyTorch's example word_language_model).

    python scripts/record_golden_recurrent.py        (needs the packages torch and safetensors)

Writes tests/golden/recurrent: tokens.bin, the ids as uint16; for each cell <cell>.safetensors with its first weights;
losses.json with loss and gradient norm (before clipping) of 20 steps of AdamW with clipping in f32 and f64, and the loss
of an evaluation on the same tokens after them.

Streams: with B rows and sequences of T tokens the text has W = (ids - 1) // T // B sequences a row; row r of step s has
sequence r * W + s mod W, and the state is zero where s mod W = 0.
"""
import json
import os

import torch
from safetensors.torch import save_file
from torch import nn

OUT = os.path.join(os.path.dirname(__file__), "..", "tests", "golden", "recurrent")
STEPS, BATCH, TOKENS, VOCAB, HIDDEN, LAYERS, PER_STREAM = 20, 4, 12, 29, 24, 2, 8
LEARNING_RATE, DECAY, CLIP = 5e-3, 0.1, 0.25
CELLS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


class Model(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.encoder = nn.Embedding(VOCAB, HIDDEN)
        self.rnn = CELLS[cell](HIDDEN, HIDDEN, LAYERS, batch_first=True)
        self.decoder = nn.Linear(HIDDEN, VOCAB)

    def forward(self, ids, state=None):
        out, state = self.rnn(self.encoder(ids), state)
        return self.decoder(out), state


def detached(state):
    return tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()


def sequences(numbers, tokens):
    ids = torch.stack([tokens[i * TOKENS:(i + 1) * TOKENS + 1] for i in numbers]).long()
    return ids[:, :-1], ids[:, 1:]


def rows_of(step, carried):
    if not carried:
        return [(step * BATCH + row) % (BATCH * PER_STREAM) for row in range(BATCH)]
    return [row * PER_STREAM + step % PER_STREAM for row in range(BATCH)]


def evaluate(model, tokens, carried):
    losses, state = [], None
    with torch.no_grad():
        for step in range(PER_STREAM):
            inputs, targets = sequences(rows_of(step, carried), tokens)
            logits, state = model(inputs, state if carried else None)
            losses.append(nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).item())
    return sum(losses) / len(losses)


def train(cell, start, tokens, carried, dtype):
    model = Model(cell).to(dtype)
    model.load_state_dict(start)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=DECAY)
    record, state = {"loss": [], "grad_norm": []}, None
    for step in range(STEPS):
        begins = not carried or step % PER_STREAM == 0
        inputs, targets = sequences(rows_of(step, carried), tokens)
        logits, state = model(inputs, None if begins else detached(state))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        record["grad_norm"].append(nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        record["loss"].append(loss.item())
        optimizer.step()
    record["evaluation"] = evaluate(model, tokens, carried)
    return record


def main():
    torch.set_num_threads(1)
    torch.manual_seed(20263)
    os.makedirs(OUT, exist_ok=True)
    # Not all independent, so that there is something to learn and the state matters.
    steps = torch.randint(0, 3, (BATCH * PER_STREAM * TOKENS + 1,))
    tokens = steps.cumsum(0) % VOCAB
    tokens.to(torch.uint16).numpy().tofile(os.path.join(OUT, "tokens.bin"))
    cases = {}
    for name, cell, carried in (("lstm", "lstm", False), ("lstm_carried", "lstm", True), ("gru_carried", "gru", True),
                                ("rnn_carried", "rnn", True)):
        if not name.endswith("carried") or cell != "lstm":
            start = {key: p.detach().clone() for key, p in Model(cell).state_dict().items()}
            save_file(start, os.path.join(OUT, f"{cell}.safetensors"))
        runs = cases[name] = {key: train(cell, start, tokens, carried, dtype)
                              for key, dtype in (("f32", torch.float32), ("f64", torch.float64))}
        apart = max(abs(a - b) / b for s in ("loss", "grad_norm") for a, b in zip(runs["f32"][s], runs["f64"][s]))
        print(f"{name}: loss {runs['f64']['loss'][0]:.6f} to {runs['f64']['loss'][-1]:.6f}, f32 and f64 at most {apart:.1e} apart")
    with open(os.path.join(OUT, "losses.json"), "w", encoding="utf-8") as file:
        json.dump({"torch": torch.__version__, "steps": STEPS, "batch": BATCH, "tokens": TOKENS, "learning_rate": LEARNING_RATE,
                   "weight_decay": DECAY, "clip": CLIP, "cases": cases}, file, indent=1)
        file.write("\n")


main()
