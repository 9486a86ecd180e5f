"""The exception of the package, of its compiled part, too."""

__all__ = ["PenstockError"]


class PenstockError(RuntimeError):
    """Says what was found, what was expected, and what to do."""
