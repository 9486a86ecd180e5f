"""The names of classes, whose numbers are what a model learns."""

from __future__ import annotations

from typing import Any, Sequence

from penstock import _core


class Classes:
    """The names of the classes that a training is about, as soon as somebody has said them."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._of = ""

    def learn(self, names: Sequence[str], of: str) -> None:
        """Raises PenstockError where others are known. No names say nothing."""
        if not names:
            return
        if not self.names:
            self.names, self._of = list(names), of
        if list(names) == self.names:
            return
        number = next(
            (i for i, (one, other) in enumerate(zip(self.names, names)) if one != other),
            min(len(self.names), len(names)),
        )
        known, found = (
            f"'{one[number]}'" if number < len(one) else "none" for one in (self.names, names)
        )
        raise _core.PenstockError(
            f"{self._of} has {len(self.names)} classes, of which class {number} is {known}; {of} "
            f"has {len(names)}, and class {number} is {found}: expected the same classes in the "
            "same order"
        )


def names_of(classes: Any) -> list[str]:
    if isinstance(classes, str) or not isinstance(classes, Sequence):
        raise TypeError(f"classes: expected names, found {classes!r:.60}")
    for one in classes:
        if not isinstance(one, str):
            raise TypeError(f"classes: expected names, found {one!r:.60}")
    return list(classes)


def classes_of(loader: Any) -> list[str]:
    """Of a loader's data set, or of the one that it is a part of; empty: they have no names."""
    dataset = getattr(loader, "dataset", None)
    while dataset is not None:
        found = getattr(dataset, "classes", None)
        if isinstance(found, (list, tuple)) and all(isinstance(one, str) for one in found):
            return list(found)
        dataset = getattr(dataset, "dataset", None)
    return []
