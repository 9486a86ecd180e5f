"""The command `penstock`, which comes with the package, and its parts as functions."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Sequence, Union

from penstock._errors import PenstockError
from penstock._parts import PathLike, environment, tool_path

if TYPE_CHECKING:
    import torch

    from penstock._export import Example

Document = Union[PathLike, Mapping[str, Any]]


def main() -> None:
    """The command `penstock`."""
    try:
        program = str(tool_path())
    except PenstockError as error:
        sys.exit(f"penstock: {error}")
    os.execve(program, [program, *sys.argv[1:]], environment())


#: What makes a process a rank of a job; a program that a rank starts is none.
_RANK_VARIABLES = ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")


def _run(*arguments: str, show: bool = False) -> str:
    """Standard output; of what it says on standard error, what went wrong is raised. `show`: all of
    it is shown as it comes, too."""
    said: list[str] = []
    with subprocess.Popen(
        [str(tool_path()), *arguments],
        env={name: value for name, value in environment().items() if name not in _RANK_VARIABLES},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:

        def listen() -> None:
            for line in process.stderr or ():
                said.append(line.rstrip("\n"))
                if show:
                    with contextlib.suppress(OSError, ValueError):  # it is closed
                        print(said[-1], file=sys.stderr, flush=True)

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        try:
            output = process.stdout.read() if process.stdout else ""
            listener.join()
            code = process.wait()
        except BaseException:  # KeyboardInterrupt
            process.kill()
            raise
    if code == 0 or (code == 1 and output):
        return output  # or the answer is no, and this says why
    message = "\n".join(said).strip().splitlines()[-20:]
    raise PenstockError(
        "\n".join(message).removeprefix("penstock: ")
        or f"penstock {arguments[0]} ended with {code}"
    )


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        yield Path(folder)


def _file(document: Document, folder: Path, name: str) -> str:
    if isinstance(document, Mapping):
        path = folder / f"{name}.json"
        path.write_text(json.dumps(document))
        return str(path)
    return os.fspath(document)


def _options(options: Mapping[str, Any]) -> list[str]:
    """batch_size=8 is --batch-size 8; True is the option alone; None and False leave it out."""
    result: list[str] = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        result.append("--" + name.replace("_", "-"))
        if isinstance(value, (list, tuple)):
            result.append(",".join(str(one) for one in value))
        elif value is not True:
            result.append(os.fspath(value) if isinstance(value, os.PathLike) else str(value))
    return result


def profile(
    model: torch.nn.Module | PathLike,
    example: Example | None = None,
    *,
    progress: bool | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Measures every layer of a model: `penstock profile`.

    :param model: a module (with an example batch, as for `export`), a .pt2 file, or the name of one
        of Penstock's own models
    :param progress: show how far it is on standard error; None: where that is a terminal
    :param options: those of the command: ``batch_size=32``, ``threads=1``, ``samples=10``,
        ``analytic=True, device="v100"``...
    :returns: the profile (docs/formats.md); times in ns, sizes in bytes
    :raises PenstockError: with the command's message
    """
    with _scratch() as folder:
        if not isinstance(model, (str, os.PathLike)):
            from penstock._export import export

            if example is None:
                raise ValueError("a module needs an example batch")
            model = export(model, example, folder / "model.pt2")
        arguments = ["profile", "--model", os.fspath(model), *_options(options), "--json"]
        show = sys.stderr.isatty() if progress is None else progress
        return json.loads(_run(*arguments, show=show))


def plan(profile: Document, cluster: PathLike | None = None, **options: Any) -> dict[str, Any]:
    """Finds the best split of a profiled model: `penstock plan`.

    :param profile: of `profile`, or a file of one
    :param cluster: a cluster file (TOML); otherwise ``workers=2`` threads of this machine
    :param options: those of the command: ``strategy="1f1b"``, ``memory_limit="16GB"``...
    :returns: the plan (docs/formats.md). With ``format="pytorch"`` what
        torch.distributed.pipelining needs instead: ``split_spec`` (modules before which it cuts),
        ``schedule`` (the text of its CSV), ``micro_batches``, and the predicted
        ``throughput_samples_per_s`` beside ``plan_throughput_samples_per_s`` of the plan's own cuts
    :raises PenstockError: no plan fits, or bad input

    >>> costs = profile("lenet5", batch_size=8, samples=1)
    >>> plan(costs, workers=2, strategy="gpipe")["strategy"]
    'gpipe'
    """
    with _scratch() as folder:
        output = folder / "plan.json"
        arguments = ["plan", "--profile", _file(profile, folder, "profile")]
        arguments += _options({"cluster": cluster, **options})
        text = _run(*arguments, "-o", str(output))
        if not output.exists():
            raise PenstockError(text.strip() or "no plan fits")
        document = json.loads(output.read_text())
        if options.get("format") == "pytorch":
            document["schedule"] = (folder / document["schedule"]).read_text()
        return document


def schedule(plan: Document | None = None, *, format: str = "penstock", **options: Any) -> str:
    """The order of every worker's actions: `penstock schedule`.

    :param plan: whose schedule; otherwise ``kind="zb-v", stages=4, micro_batches=8``...
    :param format: "penstock" (text), or "pytorch": the CSV of torch.distributed.pipelining
    :returns: the schedule

    >>> print(schedule(kind="gpipe", stages=2, micro_batches=2, compute_only=True).splitlines()[-1])
    1F0,1F1,1B0,1B1
    """
    with _scratch() as folder:
        given = None if plan is None else _file(plan, folder, "plan")
        output = folder / "schedule.txt"
        _run("schedule", *_options({"plan": given, "format": format, **options}), "-o", str(output))
        return output.read_text()


def simulate(plan: Document, **options: Any) -> dict[str, Any]:
    """What a plan will cost: `penstock simulate`.

    :param plan: of `plan`, or a file of one
    :param options: those of the command: ``mini_batches=64``, ``stragglers="5%x2"``...
    :returns: throughput, idle share, memory of every worker
    """
    with _scratch() as folder:
        path = _file(plan, folder, "plan")
        return json.loads(_run("simulate", "--plan", path, *_options(options), "--json"))


def verify(schedule: str | PathLike, **options: Any) -> dict[str, Any]:
    """Whether a schedule is sound: `penstock verify`.

    :param schedule: its text (of `schedule`, or PyTorch's CSV), or a file of it
    :param options: those of the command: ``memory_limit="16GB"``, ``rendezvous=True``...
    :returns: ``ok``, and in ``violations`` the rules that it breaks
    """
    with _scratch() as folder:
        path = os.fspath(schedule)
        if "\n" in path:
            (folder / "schedule.txt").write_text(path)
            path = str(folder / "schedule.txt")
        return json.loads(_run("verify", path, *_options(options), "--json"))


def report(plan: Document, output: PathLike = "report.html", **options: Any) -> Path:
    """One HTML page about a plan: `penstock report`.

    :param output: the page
    :param options: those of the command: ``history="run.json"``, ``trace="run.trace.json"``...
    :returns: the page's path
    """
    with _scratch() as folder:
        path = _file(plan, folder, "plan")
        _run("report", "--plan", path, *_options(options), "-o", os.fspath(output))
    return Path(output)
