"""Endpoints: ``ip:port``, which name servers and trainers."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Any

from .errors import InvalidType, InvalidValue

LARGEST_PORT = (1 << 16) - 1
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")


def is_endpoint(text: str) -> bool:
    """Tell whether a text is ``ip:port``."""
    try:
        split_endpoint(text)
    except InvalidValue:
        return False
    return True


def split_endpoint(endpoint: object) -> tuple[str, int]:
    """Return host and port of an endpoint.

    Raises:
        InvalidType: it is no text.
        InvalidValue: it is not ``ip:port``.
    """
    if not isinstance(endpoint, str):
        raise InvalidType(
            f'an endpoint is text such as "10.0.0.1:6174", got {type(endpoint).__name__} {endpoint!r}.'
        )
    host, colon, port = endpoint.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal():
        raise InvalidValue(
            f'the endpoint {endpoint!r} is not ip:port: write it as in "10.0.0.1:6174", one server each.'
        )
    if not 0 < int(port) <= LARGEST_PORT:
        raise InvalidValue(
            f"the endpoint {endpoint!r} has the port {port}; ports are numbers from 1 to {LARGEST_PORT}."
        )
    if not _is_host(host):
        raise InvalidValue(
            f"the endpoint {endpoint!r} has the host {host!r}, which is neither an IP address nor a name."
        )
    return host, int(port)


def checked_endpoints(what: str, endpoints: Any) -> list[str]:
    """Return endpoints as a list; ``what`` names them: a text with commas, or a list of texts.

    Raises:
        InvalidType: they are no text and no list of it.
        InvalidValue: there is none, one is not ``ip:port``, or one stands there twice.
    """
    names = endpoints.split(",") if isinstance(endpoints, str) else endpoints
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InvalidType(
            f"{what} must be endpoints, such as '10.0.0.1:6174,10.0.0.2:6174' or a list of them, got "
            f"{endpoints!r}."
        )
    cleaned = [name.strip() for name in names]
    if not any(cleaned):
        raise InvalidValue(
            f"{what} must be endpoints, ip:port each, and is empty: name at least one."
        )
    for name in cleaned:
        if not is_endpoint(name):
            raise InvalidValue(
                f"{what} must be endpoints, ip:port with commas between them and ports from 1 to "
                f"{LARGEST_PORT}, and has {name!r}."
            )
        if cleaned.count(name) > 1:
            raise InvalidValue(
                f"{what} has {name!r} twice: give each process an endpoint of its own."
            )
    return cleaned


def _is_host(host: str) -> bool:
    if re.fullmatch(r"[0-9.]*", host):
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True
    if host.startswith("[") and host.endswith("]"):
        try:
            ipaddress.ip_address(host[1:-1])
        except ValueError:
            return False
        return True
    return _HOST.fullmatch(host) is not None
