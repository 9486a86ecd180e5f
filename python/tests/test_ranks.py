"""Trainers as ranks of a job: they learn what one process learns, go on from each other's
checkpoints, and say on every rank what went wrong on one. torchrun starts those of one test; the
other ranks are forked, with its variables: PyTorch is loaded once."""

import os
import socket
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

import preloaded
import torch

START = """
    import os, sys, torch, penstock
    from torch import nn
    rank = int(os.environ.get("RANK", "0"))
    torch.manual_seed(rank)  # the weights are rank 0's all the same
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 16),
                          nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 3))
    data = torch.Generator().manual_seed(5)
    x = torch.randn(64, 6, generator=data)
    y = x[:, :3].argmax(1)
    def say(*words):
        sys.stdout.write(" ".join(map(str, words)) + "\\n")
        sys.stdout.flush()
    def trainer(**options):
        options = {"strategy": "gpipe", "workers": 2, "optimizer": "Adam", **options}
        return penstock.Trainer(model, x[:4], batch_size=16, micro_batches=2, **options)
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def ranks_of_torchrun(program, ranks):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(program)
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone",
             f"--nproc-per-node={ranks}", str(path)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PENSTOCK_LISTEN": free_port()},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    return [done]


def forked_ranks(program, ranks):
    common = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
              "MASTER_PORT": free_port(), "PENSTOCK_JOB_TOKEN": "0" * 32}  # fmt: skip
    return preloaded.run(program, [
        {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)
    ])  # fmt: skip


def run(program, ranks=1, start=forked_ranks):
    """Standard output of all ranks as sorted lines."""
    program = textwrap.dedent(START) + textwrap.dedent(program)
    all_done = start(program, ranks) if ranks > 1 else preloaded.run(program)
    if any(done.returncode != 0 for done in all_done):
        raise AssertionError("".join(done.stdout + done.stderr for done in all_done))
    return sorted(line for done in all_done for line in done.stdout.splitlines())


class Ranks(unittest.TestCase):
    def test_learn_what_one_process_learns(self):
        program = """
            t = trainer(strategy={strategy!r}, sync="ordered", lr=0.01)
            steps = []
            history = t.fit(x, y, epochs=2, callbacks=[steps.append])
            history += t.fit([(x[:16], y[:16]), (x[16:40], y[16:40])], callbacks=[steps.append])
            assert len(steps) == (10 if rank == 0 else 0), len(steps)
            weights = torch.cat([one.double().flatten() for one in t.state_dict().values()])
            numbers = [h["loss"] for h in history] + [t.evaluate(x, y)["loss"], weights.sum()]
            say(*[float(n).hex() for n in numbers])
        """
        for strategy in ("gpipe", "dp"):
            with self.subTest(strategy):
                alone = run(program.format(strategy=strategy))
                self.assertEqual(run(program.format(strategy=strategy), ranks=2), alone * 2)

    def test_observe_together(self):
        program = """
            t = trainer(sync="ordered", lr=0.01,
                        lr_schedule="ReduceLROnPlateau,patience=0,factor=0.5", swa_trigger=1)
            for value in (0.5, 0.6, 0.4, 0.7):
                t.fit(x, y)
                t.observe(value)
            t.fit(x, y)
            means = t.averaged_state_dict().values()
            weights = torch.cat([one.double().flatten() for one in means])
            say(t.lr, float(weights.sum()).hex())
            if "WORLD_SIZE" in os.environ:
                try:
                    t.observe(0.25 + rank)
                    say("taken")
                except penstock.PenstockError as error:
                    assert "rank 0 observes 0.25 after 20 steps, rank 1 observes 1.25" in str(error)
        """
        alone = run(program)
        self.assertTrue(alone[0].startswith("0.0025 "), alone)
        self.assertEqual(run(program, ranks=2), alone * 2)

    def test_plan_together(self):
        lines = run(
            """
            t = penstock.Trainer(model, x[:4], batch_size=16, weights="flush")
            t.fit(x, y)
            say(t.plan["strategy"], t.steps, t.rank == rank)
            """,
            ranks=2, start=ranks_of_torchrun,
        )  # fmt: skip
        self.assertEqual(lines[0], lines[1])

    def test_choose_the_fabric(self):
        lines = run(
            """
            def refused(fabric):
                try:
                    trainer(fabric=fabric)
                except Exception as error:
                    return type(error).__name__ + ": " + str(error)
            say("unknown", refused("pigeons"))
            t = trainer(fabric="tcp")
            say("loss", t.fit(x, y)[0]["loss"].hex())
            say("later", refused("auto"))
            """,
            ranks=2,
        )
        later = "ValueError: fabric: the ranks of this program are joined by 'tcp' already"
        self.assertEqual([line.startswith(f"later {later}") for line in lines[:2]], [True, True])
        self.assertEqual(lines[2], lines[3])
        self.assertIn("'pigeons'", lines[4])
        alone = run("""say("loss", trainer().fit(x, y)[0]["loss"].hex())""")
        self.assertEqual(lines[2:3], alone)

    def test_encrypt_their_connections(self):
        lines = run(
            """
            t = trainer(fabric="tcp", tls="secret")
            say("loss", t.fit(x, y)[0]["loss"].hex())
            try:
                trainer(fabric="tcp", tls="off")
            except ValueError as error:
                say("other", error)
            """,
            ranks=2,
        )
        alone = run("""say("loss", trainer(tls="secret").fit(x, y)[0]["loss"].hex())""")
        self.assertEqual(lines[:2], alone * 2)
        joined = "other tls: the ranks of this program are joined by 'secret' already, found 'off'"
        self.assertEqual(lines[2:], [joined] * 2)
        with self.assertRaisesRegex(AssertionError, "cannot read '/nowhere/tls.crt'"):
            run("""trainer(tls="/nowhere")""", ranks=2)

    def test_go_on_from_checkpoints(self):
        with tempfile.TemporaryDirectory() as folder:
            whole = """
                t = trainer()
                t.fit(x, y, epochs=3)
                say(t.evaluate(x, y)["loss"].hex())
            """
            part = f"""
                t = trainer(strategy={{strategy!r}})
                assert t.resume({folder!r}) == {{resumed}}
                assert t.epochs == ({{epochs}} - 1 if {{resumed}} else 0)
                t.fit(x, y, epochs={{epochs}} - t.epochs, checkpoint={folder!r})
                say(t.evaluate(x, y)["loss"].hex())
            """
            run(part.format(strategy="gpipe", resumed=False, epochs=1), ranks=2)
            run(part.format(strategy="serial", resumed=True, epochs=2))
            last = run(part.format(strategy="gpipe", resumed=True, epochs=3), ranks=2)
            self.assertEqual(last, run(whole) * 2)
            names = {one.name for one in Path(folder).iterdir()}
            self.assertLessEqual({"latest", "step-000000008", "step-000000012"}, names)
            weights = torch.load(Path(folder) / "step-000000012" / "weights.pt", weights_only=True)
            self.assertIn("4.running_mean", weights)

    def test_failures_reach_all_ranks_and_the_job_goes_on(self):
        lines = run(
            """
            def attempt(number, work):
                try:
                    work()
                except Exception as error:
                    say(number, rank, type(error).__name__, str(error).splitlines()[0])
            def late(step):
                if step["step"] == 2:
                    raise KeyError("mine")
            def batches():
                yield x[:16], y[:16]
                if rank == 1:
                    raise ValueError("bad file")
            def different():
                t = trainer()
                t.step(x[:16], y[:16])
                t.evaluate(x, y) if rank == 0 else t.step(x[:16], y[:16])
            class Unfit(nn.Module):
                def forward(self, x):
                    return x.no_such_thing()
            attempt(1, lambda: trainer().fit(x, y, callbacks=[late]))
            attempt(2, lambda: trainer().fit([(x[:16], y[:16])] * 3, callbacks=[late]))
            attempt(3, lambda: trainer().fit(batches()))
            attempt(4, lambda: trainer(lr=0.1 + 0.1 * rank))
            attempt(5, lambda: trainer().fit(x + rank, y))
            attempt(6, different)
            attempt(7, lambda: trainer().step(x[:16, : 6 - rank], y[:16]))
            model = Unfit()
            attempt(8, trainer)
            """,
            ranks=2,
        )
        same = "PenstockError the ranks must make the same calls with the same data: rank 0"
        for number, (first, second) in enumerate([
            ("KeyError 'mine'", "PenstockError rank 0: KeyError: 'mine'"),
            ("KeyError 'mine'", "PenstockError rank 0: KeyError: 'mine'"),
            ("PenstockError rank 1: ValueError: bad file", "ValueError bad file"),
            ("PenstockError the ranks of a job must have the same lr: rank 0 has 0.1, ",) * 2,
            (f"{same} trains epoch 1 from step 0 on in batches of 16",) * 2,
            (f"{same} evaluates the data, 64 samples",) * 2,
            ("PenstockError rank 1: the array 'input'", "PenstockError the array 'input'"),
            ("", "PenstockError rank 0: "),
        ], start=1):  # fmt: skip
            self.assertIn(f"{number} 0 {first}", lines[2 * number - 2])
            self.assertIn(f"{number} 1 {second}", lines[2 * number - 1])

    def test_the_command_is_no_rank(self):
        lines = run('say(len(penstock.profile("lenet5", batch_size=2, samples=1)["layers"]))',
                    ranks=2)  # fmt: skip
        self.assertEqual(lines, ["12", "12"])


if __name__ == "__main__":
    unittest.main()
