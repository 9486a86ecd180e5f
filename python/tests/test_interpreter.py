"""Training beside the interpreter: signals, and its end while daemon threads train."""

import tempfile
import textwrap
import unittest

import preloaded

BEGIN = """
import os, signal, tempfile, threading, time
import torch
from torch import nn
import penstock

def samples(count):
    torch.manual_seed(1)
    return torch.randn(count, 6), torch.randint(0, 3, (count,))

x, y = samples(96)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
"""


def run(program):
    return preloaded.run(BEGIN + textwrap.dedent(program))[0]


class EndOfTheInterpreter(unittest.TestCase):

    def ends_well(self, call, begin=""):
        done = run(f"""
            trainer = penstock.Trainer(model, x[:4], strategy="1f1b-flush", batch_size=24)
            batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 24)
            begun = threading.Event()
            {begin}
            threading.Thread(target=lambda: {call}, daemon=True).start()
            begun.wait()
            """)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_it_stops_the_steps_of_daemon_threads(self):
        see = "callbacks=[lambda step: begun.set()]"
        self.ends_well(f"trainer.fit(x, y, epochs=10**6, {see})")
        self.ends_well(f"trainer.fit(batches, epochs=10**6, {see})")

    def test_it_stops_other_calls_of_daemon_threads(self):
        self.ends_well("[(begun.set(), trainer.evaluate(x, y)) for _ in range(10**6)]")
        self.ends_well("[(begun.set(), trainer.state_dict()) for _ in range(10**6)]")

    def test_it_stops_a_measurement(self):
        # Not a folder of the program's own: Python removes that before the threads are stopped.
        with tempfile.TemporaryDirectory() as folder:
            self.ends_well(
                "[(begun.set(), penstock.Trainer(path)) for _ in range(10**6)]",
                f"path = penstock.export(model, x[:4], {folder + '/model.pt2'!r})")

    def test_a_fork_during_the_training_ends_by_itself(self):
        done = run("""
            trainer = penstock.Trainer(model, x[:4], strategy="1f1b-flush", batch_size=24)
            begun = threading.Event()
            thread = threading.Thread(target=lambda: trainer.fit(
                x, y, epochs=10**6, callbacks=[lambda step: begun.set()]), daemon=True)
            thread.start()
            begun.wait()
            child = os.fork()
            if child != 0:
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            """)
        self.assertEqual((done.returncode, done.stdout), (0, "0\n"), done.stderr)


class Forks(unittest.TestCase):
    """A fork has the Trainer of its parent, and none of the threads."""

    BEGIN = """
            trainer = penstock.Trainer(model, x[:4], strategy="1f1b-flush", batch_size=24)
            trainer.fit(x, y, epochs=1)
            """

    def test_it_ends_with_a_trainer_that_has_trained(self):
        for end in ("sys.exit(7)", "del trainer; import gc; gc.collect(); sys.exit(7)"):
            done = run(textwrap.dedent(self.BEGIN) + textwrap.dedent(f"""
                import sys
                child = os.fork()
                if child == 0:
                    {end}
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
                print(trainer.steps)
                """))
            self.assertEqual((done.returncode, done.stdout), (0, "7\n4\n"), done.stderr)

    def test_its_calls_raise(self):
        done = run(textwrap.dedent(self.BEGIN) + textwrap.dedent("""
            child = os.fork()
            if child == 0:
                for call in (lambda: trainer.step(x[:24], y[:24]), trainer.state_dict,
                             lambda: trainer.evaluate(x, y), lambda: trainer.fit(x, y)):
                    try:
                        call()
                    except penstock.PenstockError as error:
                        print("is a fork without its threads" in str(error), flush=True)
                os._exit(0)
            os.waitpid(child, 0)
            trainer.step(x[:24], y[:24])
            """))
        self.assertEqual((done.returncode, done.stdout), (0, 4 * "True\n"), done.stderr)

    def test_a_pool_whose_workers_drop_it_works(self):
        done = run(textwrap.dedent(self.BEGIN) + textwrap.dedent("""
            import gc, multiprocessing
            def task(number):
                global trainer
                trainer = None
                gc.collect()
                return number * number
            with multiprocessing.get_context("fork").Pool(2) as pool:
                print(pool.map(task, range(4)))
            """))
        self.assertEqual((done.returncode, done.stdout), (0, "[0, 1, 4, 9]\n"), done.stderr)


class Signals(unittest.TestCase):

    def test_an_interrupt_ends_a_measurement(self):
        done = run("""
            wide = nn.Sequential(*[nn.Linear(2000, 2000) for _ in range(4)])
            with tempfile.TemporaryDirectory() as folder:
                path = penstock.export(wide, torch.randn(4, 2000), folder + "/model.pt2")
                threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                start = time.monotonic()
                try:
                    penstock.Trainer(path, batch_size=65536, loss="mean-squared-error")
                    print("not interrupted")
                except KeyboardInterrupt:
                    print("interrupted")
            # A pass has 800 GFLOP, and there are ten.
            print("at once" if time.monotonic() - start < 30 else "late")
            """)
        self.assertEqual(done.stdout, "interrupted\nat once\n", done.stderr)

    def test_an_interrupt_ends_the_waiting_for_other_ranks(self):
        done = run("""
            import socket
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            os.environ.update(RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                              MASTER_PORT=str(port))
            threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            start = time.monotonic()
            try:
                penstock.Trainer(model, x[:4], batch_size=24)
                print("not interrupted")
            except KeyboardInterrupt:
                print("interrupted")
            # Ranks wait for a minute.
            print("at once" if time.monotonic() - start < 30 else "late")
            """)
        self.assertEqual(done.stdout, "interrupted\nat once\n", done.stderr)


if __name__ == "__main__":
    unittest.main()
