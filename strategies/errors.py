"""The one family of errors that Rowlock raises for its users.

Every member derives from :class:`EnforceNotMet` (Paddle's name for "a precondition failed") and also from
the built-in class that Paddle's documents name, so both ``except ValueError`` and
``except fluid.core.EnforceNotMet`` work. Failures of Rowlock itself are plain ``AssertionError``.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Sequence
from types import UnionType
from typing import Any, get_args


class RowlockError(Exception):
    """Root of the family."""


class EnforceNotMet(RowlockError):
    """The base of errors: a precondition fails; the message names the value and the cure."""


class EOFException(RowlockError):
    """A reader that feeds a program has no next batch."""


class InvalidValue(EnforceNotMet, ValueError):
    """An argument has the right type but a value that cannot work."""


class InvalidType(EnforceNotMet, TypeError):
    """An argument has the wrong type."""


class NotANumber(InvalidType, ValueError):
    """An argument must be a number (of None Paddle's optimizers raise ValueError)."""


class InvalidArgument(EnforceNotMet, AssertionError):
    """A call that Paddle guards with an assertion (an empty place list, a loss that is not a scalar)."""


class ShapeError(InvalidValue):
    """Shapes or dtypes of an operator's operands do not fit together."""


class FeedError(InvalidValue):
    """A fed value is missing, misnamed, or contradicts what the program declares."""


class FeedTypeError(FeedError, TypeError, RuntimeError):
    """A fed value is no array of numbers (Paddle raises RuntimeError for a Python list)."""


class NotFound(InvalidValue):
    """A name that no program, block or scope holds."""


class NotInitialized(EnforceNotMet, RuntimeError):
    """A persistable variable is read before its startup program was run."""


class MissingVariable(InvalidValue, KeyError):
    """The environment lacks a variable that says which part a process plays."""

    __str__ = Exception.__str__


class MissingFile(EnforceNotMet, FileNotFoundError, ValueError):
    """A file or folder to load from is not there."""


class NotSaved(EnforceNotMet, OSError):
    """A file cannot be written; ``errno`` says why (a full disk, a folder that is read-only)."""


class DamagedFile(EnforceNotMet, RuntimeError, ValueError):
    """A file to load is truncated, damaged, or no file of that kind; names the file and the byte."""


class StateMismatch(InvalidArgument, RuntimeError, ValueError):
    """A loaded value does not fit the program: another shape or element type, or no value for a variable."""


class StrategyError(InvalidType, ValueError):
    """A strategy field got a value it does not accept."""


class UnknownField(EnforceNotMet, AttributeError):
    """A strategy has no such field."""


class ReadOnly(EnforceNotMet, AttributeError):
    """An attribute that follows from how its object was built was assigned."""


class Unsupported(EnforceNotMet, NotImplementedError):
    """A request that Rowlock understands but does not carry out yet."""


class InvalidState(EnforceNotMet, RuntimeError):
    """An object was used after it was closed, or before it was ready."""


class SequenceError(EnforceNotMet, RuntimeError):
    """A value that holds sequences (LoD) cannot become a NumPy array, or its offsets do not fit."""


class ExecutionError(EnforceNotMet, RuntimeError):
    """An operator raised while a plan was running; names the replica, the op and the line that built it."""

    @classmethod
    def of(
        cls, replica: int | None, op: str, error: object, reads: Sequence[str], where: str
    ) -> ExecutionError:
        """Return the error of an operator that reads these variables; ``replica`` None: there is only one."""
        on = "" if replica is None else f"replica {replica}: "
        operands = ", ".join(reads) or "nothing"
        return cls(f"{on}operator {op} failed: {error} (reads {operands}; built at {where})")


class ResourceExhausted(EnforceNotMet, MemoryError):
    """A program needs more memory than a place has; refused before anything runs."""


class CollectiveError(EnforceNotMet, RuntimeError):
    """A collective could not finish: a rank is missing, failed, or disagrees."""


class ProtocolError(CollectiveError):
    """Bytes arrived that are no message, or describe more than was announced or is allowed."""


class PlacementError(CollectiveError):
    """Replicas cannot be placed as ClusterConfig demands: the cluster has no such node, or no room."""


class ReplicaLost(CollectiveError):
    """Replicas (``ranks``) ended, froze or were cut off. The text names them, their hosts and the cause."""

    def __init__(self, text: str, ranks: Sequence[int] = ()) -> None:
        super().__init__(text)
        self.ranks = list(ranks)


class ServerLost(CollectiveError):
    """A parameter server could not be reached, or ended; the text names its endpoint and the cause."""


class TrainerLost(CollectiveError):
    """A trainer that others wait for ended, or was silent for too long; the text names it and the cause."""


class ValuesLost(ReplicaLost, InvalidState):
    """Every replica that held the newest values was lost, and they with it."""


class CollectiveAborted(CollectiveError):
    """A collective was given up because of a failure elsewhere; that failure is the cause to report."""


def first_of(names: Iterable[str], most: int = 5) -> str:
    """Return names with commas; of more than ``most`` only so many."""
    listed = list(names)
    return ", ".join(listed[:most]) + (", …" if len(listed) > most else "")


def nearest(name: str, names: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the known name closest to ``name``, or an empty string."""
    known = list(names)
    folded = {other.casefold(): other for other in known}
    matches = [folded[name.casefold()]] if name.casefold() in folded else []  # 'X' for 'x'
    matches = matches or difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if not matches:
        close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
        matches = [folded[match] for match in close]
    return f" Did you mean {matches[0]!r}?" if matches else ""


def require_type(
    value: Any, kinds: type[Any] | UnionType, rule: str, error: type[EnforceNotMet] = InvalidType
) -> None:
    """Raise an error unless ``value`` is an instance of ``kinds``; True and False are no numbers.

    ``rule`` says what must be of which type (``fc: size must be an int``); the error tells what is there,
    cut short if it is long.
    """
    listed = get_args(kinds) or (kinds,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in listed):
        raise error(f"{rule}, got {reprlib.repr(value)} ({type(value).__name__}).")
