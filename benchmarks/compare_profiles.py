#!/usr/bin/env python3
"""Compares an estimated profile with one that PipeDream's authors measured and published, layer by
layer.

    penstock profile --model vgg16 --batch-size 128 --analytic --device v100 -o vgg16.json
    benchmarks/compare_profiles.py vgg16.json vgg16.graph.txt

Layers are matched by class, in order. The published additions are charged to the ReLU that follows
them (their own times are 0), and so are ours. Views and dropout, which have no times there, are
left out. --sync-ms is taken off every published forward time: their profiler waits for the device
after every layer.
"""
import argparse
import json
import re
from statistics import median

CLASSES = {
    "conv2d": "convolution", "linear": "linear", "batch_norm2d": "batch norm", "relu": "relu",
    "max_pool2d": "pooling", "avg_pool2d": "pooling", "adaptive_avg_pool2d": "pooling", "add": "add"
}
PUBLISHED_CLASSES = {
    "Conv2d": "convolution", "Linear": "linear", "BatchNorm2d": "batch norm", "ReLU": "relu",
    "MaxPool2d": "pooling", "AvgPool2d": "pooling", "Add": "add"
}
NODE = re.compile(
    r"(\w+) -- (\w+).* -- forward_compute_time=([\d.]+), backward_compute_time=([\d.]+), "
    r"activation_size=([\d.]+), parameter_size=([\d.]+)")


def merge_additions(rows):
    """Charges every addition to the ReLU after it."""
    merged, pending = [], None
    for kind, forward, backward, output, weights in rows:
        if kind == "add":
            pending = (forward, backward)
            continue
        if kind == "relu" and pending is not None:
            kind, forward, backward = "add + relu", forward + pending[0], backward + pending[1]
            pending = None
        merged.append((kind, forward, backward, output, weights))
    return merged


def estimated(path):
    with open(path) as file:
        layers = json.load(file)["layers"]
    rows = [(CLASSES[layer["kind"]], layer["forward_ns"] / 1e6, layer["backward_ns"] / 1e6,
             sum(layer["output_bytes"]), layer["weight_bytes"]) for layer in layers
            if layer["kind"] in CLASSES and
            not (layer["kind"].startswith("adaptive") and layer["stash_bytes"] == 0)]
    return merge_additions(rows)


def published(path):
    with open(path) as file:
        nodes = [match.groups() for match in map(NODE.match, file) if match]
    nodes.sort(key=lambda node: int(node[0][4:]))
    rows = [(PUBLISHED_CLASSES[kind], float(forward), float(backward), int(float(output)),
             int(float(weights))) for _, kind, forward, backward, output, weights in nodes
            if kind in PUBLISHED_CLASSES]
    return merge_additions(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("estimated")
    parser.add_argument("published")
    parser.add_argument("--sync-ms", type=float, default=0.0)
    arguments = parser.parse_args()
    ours, theirs = estimated(arguments.estimated), published(arguments.published)
    pairs = {}
    for kind in sorted({row[0] for row in ours + theirs}):
        left = [row for row in ours if row[0] == kind]
        right = [row for row in theirs if row[0] == kind]
        if len(left) != len(right):
            raise SystemExit(f"{kind}: {len(left)} layers estimated, {len(right)} published")
        pairs[kind] = [(a, (b[0], max(b[1] - arguments.sync_ms, 0), *b[2:]))
                       for a, b in zip(left, right)]

    print(f"{'class':<12} {'layers':>6} {'forward ms':>19} {'backward ms':>19} {'sum':>7} "
          f"{'median |error| per layer':>26}")
    total = [0.0] * 4
    for kind, rows in pairs.items():
        sums = [
            sum(a[1] for a, _ in rows),
            sum(b[1] for _, b in rows),
            sum(a[2] for a, _ in rows),
            sum(b[2] for _, b in rows)
        ]
        errors = [abs((a[1] + a[2]) / (b[1] + b[2]) - 1) for a, b in rows]
        print(
            f"{kind:<12} {len(rows):>6} {sums[0]:>8.1f} / {sums[1]:>8.1f} "
            f"{sums[2]:>8.1f} / {sums[3]:>8.1f} "
            f"{(sums[0] + sums[2]) / (sums[1] + sums[3]) - 1:>+7.1%} {median(errors):>26.1%}")
        total = [x + y for x, y in zip(total, sums)]
    print(
        f"{'all':<12} {sum(map(len, pairs.values())):>6} {total[0]:>8.1f} / {total[1]:>8.1f} "
        f"{total[2]:>8.1f} / {total[3]:>8.1f} "
        f"{(total[0] + total[2]) / (total[1] + total[3]) - 1:>+7.1%}")
    everything = [pair for rows in pairs.values() for pair in rows]
    for what, column in (("output", 3), ("weight", 4)):
        same = sum(a[column] == b[column] for a, b in everything)
        print(f"{what} bytes equal in {same} of {len(everything)} layers")
        for a, b in everything:
            if a[column] != b[column]:
                print(f"  {a[0]}: {a[column]} estimated, {b[column]} published")


if __name__ == "__main__":
    main()
