"""What a trainer makes of an answer: a refusal is the error that it names."""

from __future__ import annotations

from typing import TypeVar

from ...strategies import errors
from ...strategies.errors import EnforceNotMet, ProtocolError
from .messages import Answer, Refused

A = TypeVar("A")


def accepted(answer: Answer) -> Answer:
    """Return an answer that is no refusal.

    Raises:
        EnforceNotMet: it is one; the error is of the class that it names.
    """
    if not isinstance(answer, Refused):
        return answer
    kind = getattr(errors, answer.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, EnforceNotMet)):
        kind = EnforceNotMet
    error = kind(answer.text)
    raise error


def expected(answer: Answer, kind: type[A], endpoint: str) -> A:
    """Return an answer of the kind that a message asks for.

    Raises:
        ProtocolError: it is another.
    """
    if not isinstance(answer, kind):
        raise ProtocolError(
            f"parameter server {endpoint} answers {type(answer).__name__} where {kind.__name__} is due."
        )
    return answer
