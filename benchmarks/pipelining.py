#!/usr/bin/env python3
"""Models that people have, in torch.distributed.pipelining by plans of Penstock.

    pipelining.py                         # all models; some minutes
    pipelining.py --models gpt2 resnet18

For each model of python/tests/test_models.py (reduced sizes): export, a measured profile, a plan of
two stages; two processes over Gloo, one thread each, make five steps of SGD with PyTorch's 1F1B,
four micro-batches of two samples. Three ways:

- split: penstock.pytorch.pipeline with `--format pytorch`, which cuts at modules alone
- plan: penstock.pytorch.pipeline with the plan's own cut, inside of modules, too
- by hand: PyTorch's own pipeline() with the `split_spec` of the first

Losses are compared with those of the whole module in one process, over the same micro-batches, so
that batch norm takes the same statistics; dropout drops nothing, since processes draw different
numbers. "match": the largest difference of a loss is at most --tolerance, and the losses change by
ten times that. "price": the throughput that is predicted with the split, of that with the
plan's own cut. Prints a table of Markdown, and exits with 1 where `split` or `plan` does not match.
Needs a Python with the package; models of torchvision or transformers are left out without these.
"""

import argparse
import inspect
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

from machine import REPOSITORY, describe_machine

sys.path.insert(0, str(REPOSITORY / "python/tests"))

WAYS = ("split", "plan", "by hand")


def plans_of(name, folder, samples):
    """Writes the split, with its schedule, and the plan into the folder."""
    import penstock
    import test_pytorch

    model, inputs, *_ = test_pytorch.made(name)
    costs = penstock.profile(model, inputs, batch_size=2, samples=samples, progress=False)
    options = {"workers": 2, "strategy": "1f1b-flush", "straight": True, "all_workers": True,
               "micro_batches": test_pytorch.PARTS}  # fmt: skip
    split = penstock.plan(costs, format="pytorch", **options)
    (folder / "split.json").write_text(json.dumps(split))
    (folder / "plan.json").write_text(json.dumps(penstock.plan(costs, **options)))
    return split


def by_hand(model, inputs, split, loss_fn):
    """Stages and schedule as docs/plans.md says, without Penstock. A stage is given by name what
    it takes of the model's inputs."""
    import test_pytorch
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import Schedule1F1B, SplitPoint, pipeline

    for part in model.modules():  # as penstock.export does: a cache of keys is no tensor
        if getattr(getattr(part, "config", None), "use_cache", False):
            part.config.use_cache = False
    named = isinstance(inputs, dict)
    parts = test_pytorch.PARTS
    one = {key: value.chunk(parts)[0] for key, value in inputs.items()} if named else None
    pipe = pipeline(
        model, mb_args=() if named else (inputs.chunk(parts)[0],), mb_kwargs=one,
        split_spec={key: SplitPoint.BEGINNING for key in split["split_spec"]},
    )  # fmt: skip
    stage = pipe.build_stage(dist.get_rank(), torch.device("cpu"))
    own = loss_fn or (lambda output, _: output[0] if isinstance(output, tuple) else output["loss"])
    schedule = Schedule1F1B(stage, parts, loss_fn=own)
    step, takes = schedule.step, inspect.signature(stage.submod.forward).parameters

    def ready(*values, target=None, losses=None, **more):
        more = {key: value for key, value in more.items() if key in takes}
        if not stage.is_last:
            return step(*values, **more)
        return step(target=torch.zeros(parts) if target is None else target, losses=losses, **more)

    schedule.step = ready
    return [stage], schedule


def one_way(way, name, folder):
    """The losses of this rank's stage; none on the rank of the first one."""
    import penstock.pytorch
    import test_pytorch

    model, inputs, target, loss_fn = test_pytorch.made(name)
    if way == "by hand":
        split = json.loads((folder / "split.json").read_text())
        stages, schedule = by_hand(model, inputs, split, loss_fn)
    else:
        plan = json.loads((folder / f"{way}.json").read_text())
        stages, schedule = penstock.pytorch.pipeline(model, inputs, plan, loss_fn=loss_fn)
    return test_pytorch.pipeline_losses(stages, schedule, inputs, target)


def rank_main(ways, name, folder):
    """One rank. It ends with the first way that fails, since the other rank has failed, too, or
    waits for it."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method=f"file://{folder}/{ways[0]}.store", rank=rank,
                            world_size=2)  # fmt: skip
    for way in ways:
        try:
            losses = one_way(way, name, folder)
            (folder / f"{way}.{rank}.json").write_text(json.dumps({"losses": losses}))
        except Exception as error:
            said = " ".join(f"{type(error).__name__}: {error}".split())
            (folder / f"{way}.{rank}.json").write_text(json.dumps({"why": said}))
            os._exit(1)
    dist.destroy_process_group()


def run_ranks(ways, name, folder, timeout):
    command = [sys.executable, __file__, "--ways", *ways, "--models", name, "--folder", str(folder)]
    ranks = []
    for rank in range(2):
        with (folder / f"errors.{rank}").open("w") as errors:
            ranks.append(subprocess.Popen(command, env={**os.environ, "RANK": str(rank)},
                                          stdout=subprocess.DEVNULL, stderr=errors))  # fmt: skip
    for process in ranks:
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def silent(rank, folder):
    """Why a rank left no losses: the last line of its errors."""
    path = folder / f"errors.{rank}"
    lines = path.read_text(errors="replace").split("\n") if path.exists() else []
    last = next((line.strip() for line in reversed(lines) if line.strip()), "no errors, no end")
    return f"rank {rank}: {last}"


def outcome(way, folder, expected, tolerance):
    """What became of a way; the losses are those of the last stage."""
    paths = [folder / f"{way}.{rank}.json" for rank in range(2)]
    said = [json.loads(path.read_text()) for path in paths if path.exists()]
    missing = [silent(rank, folder) for rank, path in enumerate(paths) if not path.exists()]
    failed = [one["why"] for one in said if "why" in one]
    if failed or missing:
        own = [one for one in failed if "Connection " not in one]  # lost by the other's end
        return {"matches": False, "why": (own or missing or failed)[0]}
    losses = next(one["losses"] for one in said if one["losses"])
    apart = max(abs(a - b) for a, b in zip(losses, expected))
    change = max(expected) - min(expected)
    good = len(losses) == len(expected) and apart <= tolerance < change / 10
    return {"matches": good, "apart": apart, "losses": losses}


def measured(name, args):
    """A row: the cuts, their price, and what became of each way."""
    import test_pytorch

    with tempfile.TemporaryDirectory(prefix="penstock-pipelining-") as temporary:
        folder = pathlib.Path(temporary)
        split = plans_of(name, folder, args.samples)
        model, inputs, target, loss_fn = test_pytorch.made(name)
        expected = test_pytorch.whole_losses(model, inputs, target, loss_fn)
        found = {}
        while left := [way for way in args.ways if way not in found]:
            run_ranks(left, name, folder, args.timeout)
            for way in left:
                found[way] = outcome(way, folder, expected, args.tolerance)
                if "why" in found[way]:
                    break
        plan = json.loads((folder / "plan.json").read_text())
        of_plan = split["plan_throughput_samples_per_s"]
        return {
            "model": name,
            "cut": list(split["split_spec"]),
            "plan_cut": [stage["layers"][0] for stage in plan["stages"][1:]],
            "price": split["throughput_samples_per_s"] / of_plan,
            "expected": expected,
            **found,
        }


def line(row, ways):
    cuts = {"split": "cut", "plan": "plan_cut"}
    cells = [row["model"], f"{row['expected'][0]:.3f} to {row['expected'][-1]:.3f}",
             f"{100 * row['price']:.0f} %"]  # fmt: skip
    for way in ways:
        cells += [f"`{', '.join(row[cuts[way]])}`"] if way in cuts else []
        one = row[way]
        cells.append(f"{one['apart']:.0e}" if one["matches"] else "no")
    return f"| {' | '.join(cells)} |"


def head(ways):
    cuts = {"split": ["split before"], "plan": ["plan's cut before"]}
    cells = ["model", "loss", "price", *(one for way in ways for one in [*cuts.get(way, ()), way])]
    return f"| {' | '.join(cells)} |\n|{'---|' * len(cells)}"


def makers(chosen):
    """The names of models whose packages are there."""
    import test_models
    import test_pytorch

    found = [*test_models.OWN]
    for package, of_it in (("torchvision", test_models.VISION),
                           ("transformers", test_models.LIBRARY)):  # fmt: skip
        if test_pytorch.is_installed(package):
            found += of_it
        elif not chosen:
            print(f"without {package}: its {len(of_it)} models are left out", file=sys.stderr)
    names = [one.__name__ for one in found]
    if unknown := set(chosen or ()) - set(names):
        raise SystemExit(f"no models: {sorted(unknown)}; there are {', '.join(names)}")
    return chosen or names


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", help="all, if none is given")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="of a loss")
    parser.add_argument("--samples", type=int, default=3, help="of the profile")
    parser.add_argument("--timeout", type=float, default=180, help="seconds of a job")
    parser.add_argument("--output", type=pathlib.Path, help="a JSON of every number")
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=WAYS)
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.folder:
        rank_main(args.ways, args.models[0], args.folder)
        return
    import torch

    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    warnings.simplefilter("ignore")
    names = makers(args.models)
    print(head(args.ways), flush=True)
    rows = []
    for name in names:
        rows.append(measured(name, args))
        print(line(rows[-1], args.ways), flush=True)
    print()
    for way in args.ways:
        good = sum(row[way]["matches"] for row in rows)
        print(f"{way}: {good} of {len(rows)} models match, within {args.tolerance:.0e}")
        for row in rows:
            if not row[way]["matches"]:
                print(f"    {row['model']}: {row[way].get('why', row[way].get('apart'))}")
    if args.output:
        document = {"machine": describe_machine(), "torch": torch.__version__, "models": rows}
        args.output.write_text(json.dumps(document, indent=1) + "\n")
    own = [way for way in args.ways if way != "by hand"]
    if not all(row[way]["matches"] for row in rows for way in own):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
