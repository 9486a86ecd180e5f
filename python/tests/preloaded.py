"""Programs in processes that have PyTorch already: they are forked from one that has imported it
and exported a module, which takes five seconds of a processor. Each imports penstock itself, and
ends as any Python does. A child starts with one thread, and with OMP_NUM_THREADS=1.

    done, = preloaded.run("import penstock; print(penstock.__name__)")
    done.returncode, done.stdout, done.stderr

One run at a time.
"""

import atexit
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import types
from pathlib import Path

_server = None


def run(program, environments=({},), timeout=120):
    """One process per environment, all at the same time: what subprocess.run() returns, with text.
    Raises TimeoutError."""
    global _server
    if _server is None:
        _server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        atexit.register(_end)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(textwrap.dedent(program))
        request = {"folder": folder, "environments": list(environments), "timeout": timeout}
        _server.stdin.write(json.dumps(request) + "\n")
        _server.stdin.flush()
        codes = json.loads(_server.stdout.readline())
        if codes is None:
            raise TimeoutError(f"no end after {timeout} s: {program}")
        return [
            subprocess.CompletedProcess(
                path, code, *((Path(folder) / f"{k}.{end}").read_text() for end in ("out", "err"))
            )
            for k, code in enumerate(codes)
        ]


def _end():
    _server.stdin.close()
    _server.wait()
    _server.stdout.close()


def _redirect(number, path, flags):
    file = os.open(path, flags, 0o600)
    os.dup2(file, number)
    os.close(file)


def _become(request, k):
    """In a child: the process number k of a request."""
    files = os.path.join(request["folder"], str(k))
    _redirect(0, os.devnull, os.O_RDONLY)
    _redirect(1, files + ".out", os.O_WRONLY | os.O_CREAT)
    _redirect(2, files + ".err", os.O_WRONLY | os.O_CREAT)
    os.environ.update(request["environments"][k])
    return os.path.join(request["folder"], "program.py")


def _wait(children, seconds):
    """Their exit codes, or None if one takes longer: then all are killed."""
    late = False

    def kill(*_):
        nonlocal late
        late = True
        for child in children[len(codes) :]:
            os.kill(child, signal.SIGKILL)

    codes = []
    signal.signal(signal.SIGALRM, kill)
    signal.alarm(seconds)
    for child in children:
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    signal.alarm(0)
    return None if late else codes


def _serve():
    """Returns in a child, with the path of its program, and at the end, with None."""
    import torch

    body = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
    program = torch.export.export(body, (torch.zeros(4, 6),), strict=False,
                                  dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))
    torch.export.save(program, io.BytesIO())
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"a process of {threads} threads cannot be forked"
    for line in sys.stdin:
        request = json.loads(line)
        children = []
        for k in range(len(request["environments"])):
            child = os.fork()
            if child == 0:
                return _become(request, k)
            children.append(child)
        print(json.dumps(_wait(children, request["timeout"])), flush=True)
    return None


if __name__ == "__main__":
    path = _serve()
    if path is not None:
        own = sys.modules["__main__"] = types.ModuleType("__main__")
        own.__file__ = path
        exec(compile(Path(path).read_text(), path, "exec"), own.__dict__)
