"""Where a loader of batches is, as checkpoints keep it."""

from __future__ import annotations

import base64
import contextlib
import io
import json
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

import torch

from penstock import _core

#: A tensor in the state of a loader.
_TENSOR = "tensor of torch.save"
_END = object()


class Seen(NamedTuple):
    """Where a loader is after so many steps."""

    steps: int
    state: str  # JSON
    is_over: bool  # an epoch of `fit` that has not ended yet has no batch left


def state_text(state: Any) -> str:
    """JSON, with tensors as texts. Raises TypeError for values that would come back as others."""

    def plain(value: Any, place: str) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, list):
            return [plain(one, f"{place}[{k}]") for k, one in enumerate(value)]
        if isinstance(value, dict):
            wrong = [key for key in value if not isinstance(key, str) or key == _TENSOR]
            if wrong:
                raise TypeError(f"{place} has the key {wrong[0]!r:.60}, expected texts")
            return {key: plain(one, f"{place}[{key!r}]") for key, one in value.items()}
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{place} is a {type(value).__name__}")
        content = io.BytesIO()
        torch.save(value.cpu(), content)
        return {_TENSOR: base64.b64encode(content.getvalue()).decode()}

    return json.dumps(plain(state, "the state"))


def state_of(text: str) -> Any:
    def value(found: dict[str, Any]) -> Any:
        if list(found) != [_TENSOR]:
            return found
        content = io.BytesIO(base64.b64decode(found[_TENSOR]))
        return torch.load(content, weights_only=True)

    return json.loads(text, object_hook=value)


def says_where_it_is(loader: Any) -> bool:
    """As StatefulDataLoader of torchdata and the loaders of penstock.data do."""
    return all(callable(getattr(loader, name, None)) for name in ("state_dict", "load_state_dict"))


class Inside(NamedTuple):
    """How far an epoch of tensors is: steps of so many samples each."""

    steps: int
    batch_size: int
    samples: int
    shuffle: bool | None
    is_resumed: bool = False

    def __str__(self) -> str:
        order = {None: "", True: ", shuffled", False: ", not shuffled"}[self.shuffle]
        return f"{self.samples} samples in steps of {self.batch_size}{order}"


class Resumable:
    """A DataLoader of torch.utils.data that says where it is: so many batches behind the beginning
    of its epoch, at which PyTorch's generators had this state. Going there reads these batches
    again, so that what is random in them is the same."""

    def __init__(self, loader: torch.utils.data.DataLoader) -> None:
        self.loader = loader
        self._batches = 0
        self._begin: list[str] | None = None  # of the epoch that is under way

    @property
    def dataset(self) -> Any:
        return self.loader.dataset

    def __len__(self) -> int:
        return len(self.loader) - self._batches

    def _generators(self) -> list[torch.Generator]:
        found = [torch.default_generator]
        for one in (self.loader, self.loader.sampler, self.loader.batch_sampler):
            generator = getattr(one, "generator", None)
            if generator is not None and all(generator is not other for other in found):
                found.append(generator)
        return found

    def _states(self) -> list[str]:
        return [base64.b64encode(one.get_state().numpy().tobytes()).decode()
                for one in self._generators()]  # fmt: skip

    def __iter__(self) -> Iterator[Any]:
        if self._begin is None:
            self._begin = self._states()
        else:
            for generator, state in zip(self._generators(), self._begin):
                content = bytearray(base64.b64decode(state))
                generator.set_state(torch.frombuffer(content, dtype=torch.uint8))
        known, total = self._batches, len(self.loader)
        batches = iter(self.loader)
        number, batch = 1, next(batches, _END)
        while batch is not _END:
            # Samplers draw from their generators at the end, too.
            following = next(batches, _END) if number >= total else None
            if number > known:
                self._batches = number
                if following is _END:
                    self.begin_anew()
                yield batch
            batch = next(batches, _END) if following is None else following
            number += 1
        self.begin_anew()

    @property
    def is_between_epochs(self) -> bool:
        return self._batches == 0

    def begin_anew(self) -> None:
        self._batches, self._begin = 0, None

    def state_dict(self) -> dict[str, Any]:
        return {"batches": self._batches, "of": len(self.loader),
                "generators": self._begin or self._states()}  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        try:
            batches, total = int(state["batches"]), int(state["of"])
            states = [str(one) for one in state["generators"]]
        except (KeyError, TypeError, ValueError):
            raise _core.PenstockError(
                f"expected the place of a DataLoader, found {state!r:.80}"
            ) from None
        if total != len(self.loader) or len(states) != len(self._generators()):
            raise _core.PenstockError(
                f"the place is one in a DataLoader of {total} batches, this one has "
                f"{len(self.loader)}: go on with the same data"
            )
        self._batches, self._begin = batches, states


@contextlib.contextmanager
def kept_generator() -> Iterator[None]:
    """PyTorch's own generator is afterwards as before: each pass through a DataLoader draws from
    it, and one that only looks must not change what is learned."""
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


def is_between_epochs(place: str) -> bool:
    """Whether the text of a loader's place says so."""
    try:
        state = json.loads(place)
        return not any(state.get(name) for name in ("batch", "batches"))
    except (ValueError, AttributeError):
        return False


def resumable(loader: Any) -> bool:
    """Of a DataLoader that cannot say where it is itself."""
    if not isinstance(loader, torch.utils.data.DataLoader) or says_where_it_is(loader):
        return False
    return not isinstance(loader.dataset, torch.utils.data.IterableDataset)


def join_batches(
    parts: Sequence[tuple[list[torch.Tensor], torch.Tensor | None]], names: Sequence[str],
    ignored: int,
) -> tuple[list[torch.Tensor], torch.Tensor | None]:  # fmt: skip
    """Batches of one step. Shorter sequences are padded behind their ends: labels and targets with
    what is ignored, other inputs with zeros."""
    if len(parts) == 1:
        return parts[0]
    inputs = [
        _joined(list(column), ignored if name in ("labels", "targets") else 0)
        for name, column in zip(names, zip(*(inputs for inputs, _ in parts)))
    ]
    targets = [one for _, one in parts if one is not None]
    return inputs, _joined(targets, ignored) if targets else None


def _joined(tensors: list[torch.Tensor], filler: int) -> torch.Tensor:
    longest = max((one.shape[1] for one in tensors if one.dim() > 1), default=0)
    padded = []
    for one in tensors:
        short = longest - one.shape[1] if one.dim() > 1 and not one.is_floating_point() else 0
        if short:
            pad = [0, 0] * (one.dim() - 2) + [0, short]
            one = torch.nn.functional.pad(one, pad, value=filler)
        padded.append(one)
    return torch.cat(padded)
