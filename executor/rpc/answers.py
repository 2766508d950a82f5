"""Refusals: an error at the server becomes an answer, and is raised again at the trainer."""

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
    if isinstance(answer, Refused):
        raise error_of(answer)
    return answer


def error_of(refusal: Refused) -> EnforceNotMet:
    """Return the error that a server refused with, of the class that it named."""
    kind = getattr(errors, refusal.kind, None)
    if isinstance(kind, type) and issubclass(kind, EnforceNotMet):
        return kind(refusal.text)
    return errors.ExecutionError(refusal.text)


def refusal_of(error: Exception) -> Refused:
    """Return what tells a trainer of an error at the server."""
    if isinstance(error, EnforceNotMet):
        return Refused(type(error).__name__, str(error))
    return Refused("ExecutionError", f"the server failed: {type(error).__name__}: {error}")


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
