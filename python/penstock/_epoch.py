"""An epoch as it goes: its numbers, its bar."""

from __future__ import annotations

import sys
import time
from typing import Any, Callable, Mapping, Sequence


class Epoch:
    """What is known of an epoch so far; the bar. `tell` is called with each step."""

    def __init__(
        self, epoch: int, steps: int, tell: Callable[[dict[str, Any]], Any] | None, progress: bool
    ) -> None:
        self.epoch = epoch
        self.total = 0
        self.is_cut = False  # it ended before its last step
        self._first = steps
        self._tell = tell
        self._progress = progress
        self._results: list[dict[str, Any]] = []
        self._start = time.perf_counter()
        self._drawn = 0.0

    def __enter__(self) -> "Epoch":
        return self

    def __exit__(self, *raised: object) -> None:
        """Ends the bar's line, however the epoch ends."""
        if self._progress and self._results:
            self._draw(self._results[-1]["loss"])
            sys.stderr.write("\n")

    @property
    def steps(self) -> int:
        return len(self._results)

    def add(self, result: dict[str, Any]) -> None:
        self._results.append(result)
        if self._tell is not None:
            self._tell({"epoch": self.epoch, "step": self._first + len(self._results), **result})
        now = time.perf_counter()
        if self._progress and now - self._drawn > 0.1:
            self._drawn = now
            self._draw(result["loss"])

    def _draw(self, loss: float) -> None:
        done = len(self._results)
        seconds = time.perf_counter() - self._start
        samples = sum(one["samples"] for one in self._results)
        rest = f"/{self.total}" if self.total else ""
        left = f", {seconds / done * (self.total - done):.0f} s left" if self.total > done else ""
        sys.stderr.write(
            f"\repoch {self.epoch + 1}: step {done}{rest}, loss {loss:.4f}, "
            f"{samples / max(seconds, 1e-9):.0f} samples/s{left}\033[K"
        )
        sys.stderr.flush()

    def result(self) -> dict[str, Any]:
        seconds = time.perf_counter() - self._start
        return {"epoch": self.epoch, **mean_of(self._results), "seconds": seconds}


def mean_of(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Over all targets that count, however they are spread over the batches."""
    samples = sum(one["samples"] for one in results)
    targets = sum(one["targets"] for one in results)
    loss = sum(one["loss"] * one["targets"] for one in results) / max(targets, 1)
    known = [one for one in results if one["accuracy"] is not None]
    accuracy = None
    if known:
        share = sum(one["targets"] for one in known)
        accuracy = sum(one["accuracy"] * one["targets"] for one in known) / share
    return {"loss": loss, "accuracy": accuracy, "samples": samples, "targets": targets}
