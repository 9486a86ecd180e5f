#!/usr/bin/env python3
"""Schedules exchanged with PyTorch, both ways.

    python benchmarks/orders/run_pytorch.py --penstock build/release/penstock

Needs a torch with torch.distributed.pipelining. Every schedule that PyTorch makes, for 2 to 8
ranks, as computations alone and with messages: read, verified and simulated by penstock. Every kind
of penstock's that PyTorch can hold, both ways: read by PyTorch's own loader and validator, and run
by its dry-run simulator. Prints a table row per schedule; exits with 1 when anything is refused.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import torch
from torch.distributed.pipelining import schedules as torch_schedules
from torch.distributed.pipelining.schedules import (
    _Action, _simulate_comms_compute, _validate_schedule)

# PyTorch's class, stages per rank, micro-batches per rank
THEIRS = [("ScheduleLoopedBFS", (2, 3), (1, 2)), ("ScheduleInterleaved1F1B", (2, 3), (1, 2)),
          ("ScheduleInterleavedZeroBubble", (2, 3), (1, 2)),
          ("ScheduleZBVZeroBubble", (2,), (1, 2, 3)), ("ScheduleDualPipeV", (2,), (2, 3))]
OURS = [("gpipe", 1), ("1f1b-flush", 1), ("eager-1f1b", 1), ("interleaved", 2),
        ("interleaved-zb", 2), ("zb-h1", 1), ("zb-h2", 1), ("zb-auto", 1),
        ("zb-v", 2), ("v-half", 2), ("v-min", 2),
        ("zb-auto-v", 2), ("dualpipe-v", 2)]


class Stage(SimpleNamespace):
    """What a schedule asks of a stage before it runs."""

    def __init__(self, index, ranks, stages, style):
        rank = index % ranks if style == "loop" or index < ranks else stages - 1 - index
        super().__init__(stage_index=index, num_stages=stages, group_size=ranks, group_rank=rank,
                         group=None, submod=torch.nn.Identity(), has_backward=True,
                         is_first=index == 0, is_last=index == stages - 1,
                         stage_index_to_group_rank={}, device=torch.device("cpu"),
                         dw_builder=None)


def make_theirs(name, ranks, per_rank, micro_batches):
    style = "loop" if name in ("ScheduleLoopedBFS", "ScheduleInterleaved1F1B",
                               "ScheduleInterleavedZeroBubble") else "v"
    stages = ranks * per_rank
    own = [Stage(index, ranks, stages, style) for index in range(stages)]
    return getattr(torch_schedules, name)([one for one in own if one.group_rank == 0],
                                          micro_batches, loss_fn=lambda *_: None)


def penstock(tool, *arguments):
    done = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def read_theirs(tool, folder):
    """Yields (name, files, refusals, notes)."""
    for name, chunks, rounds in THEIRS:
        files, refused, notes = 0, [], set()
        for ranks in range(2, 9):
            for per_rank in chunks:
                for times in rounds:
                    made = make_theirs(name, ranks, per_rank, ranks * times)
                    spans = []
                    for form in ("compute_only", "compute_comms"):
                        file = folder / f"{name}-{ranks}-{per_rank}-{times}-{form}.csv"
                        made._dump_csv(str(file), format=form)
                        files += 1
                        code, out, err = penstock(tool, "verify", file, "--json", "--credits", 64)
                        if code != 0 or not json.loads(out)["ok"]:
                            refused.append(f"{file.name}: {out[:200]}{err[:200]}")
                            continue
                        notes.update(re.findall(r"note: (.*)", err))
                        code, out, err = penstock(tool, "simulate", "--schedule", file, "--json",
                                                  "--forward", "1ms", "--backward-input", "1.2ms",
                                                  "--backward-weight", "0.8ms",
                                                  "--latency", "0.1ms")
                        if code != 0:
                            refused.append(f"{file.name}: {err[:200]}")
                            continue
                        spans.append(json.loads(out)["makespan_ns"])
                    yield name, ranks, spans, refused, notes
                    refused, notes = [], set()


def load_ours(tool, folder):
    for kind, per_rank in OURS:
        for ranks in range(2, 9):
            for times in (1, 2, 3):
                stages = ranks * per_rank
                for form in ("compute_only", "compute_comms"):
                    file = folder / f"{kind}-{ranks}-{times}-{form}.csv"
                    options = ["--compute-only"] if form == "compute_only" else []
                    code, _, err = penstock(tool, "schedule", "--kind", kind, "--stages", stages,
                                            "--micro-batches", ranks * times, "--format", "pytorch",
                                            "-o", file, *options)
                    if code != 0:
                        yield kind, f"{file.name}: {err[:200]}"
                        continue
                    try:
                        check_ours(file, form, ranks, stages, ranks * times)
                    except Exception as error:  # noqa: BLE001 whatever PyTorch says
                        yield kind, f"{file.name}: {type(error).__name__}: {str(error)[:200]}"
                        continue
                    yield kind, None


def check_ours(file, form, ranks, stages, micro_batches):
    rows = {rank: [_Action.from_str(cell) for cell in line.split(",")]
            for rank, line in enumerate(file.read_text().splitlines())}
    computations = {rank: [one for one in row if one.is_compute_op] for rank, row in rows.items()}
    places = _validate_schedule(computations, ranks, stages, micro_batches)
    # Its loader, which adds and checks messages.
    own = [Stage(index, ranks, stages, "loop") for index in range(stages)]
    for one in own:
        one.group_rank = places[one.stage_index]
        one.stage_index_to_group_rank = places
    loaded = torch_schedules._PipelineScheduleRuntime([one for one in own if one.group_rank == 0],
                                                      micro_batches, loss_fn=lambda *_: None)
    loaded.stage_index_to_group_rank = places
    loaded._load_csv(str(file), format=form)
    with_messages = loaded.pipeline_order_with_comms
    if any(one.sub_actions for row in with_messages.values() for one in row):
        return  # its dry run does not know OVERLAP_F_B
    for row in with_messages.values():
        row[:] = [one for one in row
                  if one.is_compute_op or "SEND" in str(one) or "RECV" in str(one)]
    _simulate_comms_compute(with_messages, lambda stage: places[stage], stages)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--penstock", required=True)
    args = parser.parse_args()
    failed = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"torch {torch.__version__}\n")
        print("| PyTorch's schedule | files | read, verified, simulated | computations and "
              "messages take the same time |")
        print("|---|---|---|---|")
        table = {}
        for kind, _, spans, refused, notes in read_theirs(args.penstock, folder):
            row = table.setdefault(kind, [0, 0, 0, 0])
            row[0] += 2
            row[1] += len(spans)
            row[2] += 1
            row[3] += len(spans) == 2 and spans[0] == spans[1]
            failed += refused
            for note in sorted(notes):
                print(f"<!-- {kind}: {note} -->", file=sys.stderr)
        for kind, (files, read, cases, same) in table.items():
            print(f"| `{kind}` | {files} | {read} | {same} of {cases} |")
        print("\n| kind | files | loaded, validated, run dry by PyTorch |")
        print("|---|---|---|")
        table = {}
        for kind, refusal in load_ours(args.penstock, folder):
            row = table.setdefault(kind, [0, 0])
            row[0] += 1
            row[1] += refusal is None
            failed += [refusal] if refusal else []
        for kind, (files, loaded) in table.items():
            print(f"| `{kind}` | {files} | {loaded} |")
    for one in failed[:20]:
        print(one, file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
