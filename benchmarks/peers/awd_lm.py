#!/usr/bin/env python3
"""AWD-LSTM in plain PyTorch, as `penstock train --model awd_lm --carry-state` trains it: the same
text, parts, windows, dropout rates and steps; masks and initial weights of its own.

    awd_lm.py book --width 128 --embedding 64 --depth 2 --steps 400

`book` is a folder of `penstock data text`. Prints one JSON object: the losses, and the perplexity
of the test set after the last step.
"""

import argparse
import json
import math
import pathlib
import time

import numpy
import torch
from torch import nn
from torch.nn import functional as F


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    for name, usual in (("input", 35), ("width", 128), ("embedding", 64), ("depth", 2),
                        ("batch-size", 20), ("steps", 400), ("seed", 1), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    for name, usual in (("dropout", 0.2), ("lr", 5.0), ("clip-norm", 0.25)):
        parser.add_argument(f"--{name}", type=float, default=usual)
    parser.add_argument("--no-carry", action="store_true", help="every window begins with zeros")
    return parser.parse_args()


def locked(x, share, training):
    """One mask for all places of a sample."""
    if not training or share == 0:
        return x
    mask = torch.empty(x.shape[0], 1, x.shape[2]).bernoulli_(1 - share) / (1 - share)
    return x * mask


class AwdLm(nn.Module):
    """Merity, Keskar, Socher 2018, with the paper's ratios of the dropouts (section 5)."""

    def __init__(self, vocabulary, options):
        super().__init__()
        sizes = [options.embedding] + [options.width] * (options.depth - 1) + [options.embedding]
        self.rate = options.dropout / 0.4
        self.encoder = nn.Embedding(vocabulary, options.embedding)
        self.rnns = nn.ModuleList(nn.LSTM(a, b, batch_first=True)
                                  for a, b in zip(sizes, sizes[1:]))
        self.decoder = nn.Linear(options.embedding, vocabulary)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.decoder.bias, -1 / math.sqrt(options.embedding),
                         1 / math.sqrt(options.embedding))

    def embedded(self, tokens):
        if not self.training or self.rate == 0:
            return self.encoder(tokens)
        share = 0.1 * self.rate
        mask = torch.empty(len(self.encoder.weight), 1).bernoulli_(1 - share) / (1 - share)
        return F.embedding(tokens, self.encoder.weight * mask)

    def run(self, rnn, x, state):
        weights = {name: weight for name, weight in rnn.named_parameters()}
        if self.training and self.rate:
            weights["weight_hh_l0"] = F.dropout(rnn.weight_hh_l0, 0.5 * self.rate)
        return torch.func.functional_call(rnn, weights, (x, state))

    def forward(self, tokens, states):
        x = locked(self.embedded(tokens), 0.4 * self.rate, self.training)
        after = []
        for i, (rnn, state) in enumerate(zip(self.rnns, states)):
            x, state = self.run(rnn, x, state)
            after.append(tuple(part.detach() for part in state))
            share = 0.4 if i + 1 == len(self.rnns) else 0.25
            x = locked(x, share * self.rate, self.training)
        return self.decoder(x), after


def parts_of(path, options):
    """[steps, samples, places + 1]: window k of each part, and the token behind it."""
    tokens = torch.from_numpy(numpy.fromfile(path, dtype=numpy.uint16).astype(numpy.int64))
    windows = (len(tokens) - 1) // options.input
    steps = windows // options.batch_size
    starts = (torch.arange(options.batch_size) * steps + torch.arange(steps)[:, None])
    return tokens[starts[..., None] * options.input + torch.arange(options.input + 1)]


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    vocabulary = json.loads((options.folder / "manifest.json").read_text())["vocabulary"]["size"]
    model = AwdLm(vocabulary, options)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
    nothing = [None] * options.depth

    def loss_of(window, states):
        logits, after = model(window[:, :-1], nothing if options.no_carry else states)
        return F.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten()), after

    train = parts_of(options.folder / "train.bin", options)
    losses, began = [], time.monotonic()
    for step in range(options.steps):
        if step % len(train) == 0:
            states = nothing
        loss, states = loss_of(train[step % len(train)], states)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), options.clip_norm)
        optimizer.step()
        losses.append(loss.item())
    seconds = time.monotonic() - began
    model.eval()
    states, total = nothing, 0.0
    test = parts_of(options.folder / "test.bin", options)
    with torch.no_grad():
        for window in test:
            loss, states = loss_of(window, states)
            total += loss.item() / len(test)
    print(json.dumps({"perplexity": math.exp(total), "losses": losses, "seconds": seconds}))


if __name__ == "__main__":
    main()
