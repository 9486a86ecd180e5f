"""The learning rate at which the loss falls fastest, as fast.ai and Lightning look for it."""

from __future__ import annotations

import math
from typing import Any, Callable, Iterator, Sequence

from penstock import _core

#: The share of the mean before, in the running mean of losses.
_SMOOTH = 0.9
_NOISY = 10
#: With fewer there is no place behind the noisy ones and before the lowest.
_FEWEST = _NOISY + 3
#: A loss that is so many times the best ends the search.
_DIVERGED = 4.0


def find(
    step: Callable[[Any, float], float], batches: Iterator[Any], lowest: float, highest: float,
    steps: int,
) -> dict[str, Any]:  # fmt: skip
    """`step`: the loss of a step on a batch at a rate."""
    rates: list[float] = []
    losses: list[float] = []
    mean, best = 0.0, math.inf
    for number in range(steps):
        batch = next(batches, None)
        if batch is None:
            break
        rate = lowest * (highest / lowest) ** (number / (steps - 1))
        try:
            loss = step(batch, rate)
        except _core.PenstockError as error:
            if "no longer finite" in str(error):
                break
            raise
        mean = _SMOOTH * mean + (1 - _SMOOTH) * loss
        smooth = mean / (1 - _SMOOTH ** (number + 1))
        rates.append(rate)
        losses.append(smooth)
        best = min(best, smooth)
        if not math.isfinite(smooth) or smooth > _DIVERGED * best:
            break
    return {"suggestion": steepest(rates, losses, _NOISY), "lrs": rates, "losses": losses}


def steepest(
    rates: Sequence[float], losses: Sequence[float], noisy: int = 0
) -> float | None:
    """Before the lowest loss, behind the first ones, of which the mean has few losses; None: it
    never falls."""
    if len(losses) < 3:
        return None
    lowest = min(range(len(losses)), key=losses.__getitem__)
    fall, place = 0.0, None
    for k in range(1 + noisy, lowest):
        slope = (losses[k + 1] - losses[k - 1]) / math.log(rates[k + 1] / rates[k - 1])
        if slope < fall:
            fall, place = slope, k
    return None if place is None else rates[place]


def check(lowest: Any, highest: Any, steps: Any) -> None:
    if not (0 < lowest < highest < math.inf):
        raise ValueError(
            f"lowest, highest: expected rates above 0, the first the lower, found {lowest!r:.40} "
            f"and {highest!r:.40}"
        )
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < _FEWEST:
        raise ValueError(f"steps: expected at least {_FEWEST}, found {steps!r:.60}")
