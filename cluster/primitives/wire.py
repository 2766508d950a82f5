"""The header of every frame that processes of a gang exchange once they have proved themselves.

``kind, number, bytes of text, flags, bytes of body, step | text | body``: 32 bytes, then as many as they say.

* A step message (:data:`STEP`, ``cluster/channel/frame.py``): the text is a head of MessagePack, the body
  arrays; the number pairs an answer with its question, the flags name slots of shared memory.
* What a host came to a collective for (:data:`COLLECTIVE`, ``cluster/collective/stream.py``): the text says it
  in words, cut or padded to :data:`ANNOUNCED_BYTES`, the flags are the CRC-32 of all the words, the number
  counts the collectives, and the body is what the host sends.
* An abort, or the end of a connection without one (:data:`ABORT` and :data:`FAREWELL`,
  ``cluster/collective/abort_channel.py``): the text is the reason; there is no body.

:func:`read_header` refuses other kinds, and a text longer than that of its kind may be. Readers give memory to
a body only once the text describes one of that size, or none at all beyond what they expect.
"""

from __future__ import annotations

import struct

from ...strategies.errors import ProtocolError

STEP, COLLECTIVE, ABORT, FAREWELL = b"RLK3", b"RLKC", b"RLKX", b"RLKB"
ANNOUNCED_BYTES, REASON_BYTES = 224, 2048
_LARGEST_TEXT = {STEP: 1 << 28, COLLECTIVE: ANNOUNCED_BYTES, ABORT: REASON_BYTES, FAREWELL: 0}
_HEADER = struct.Struct("<4sIIIQq")
HEADER_BYTES = _HEADER.size


def frame_head(
    kind: bytes, number: int, text: bytes, flags: int = 0, body: int = 0, step: int = 0
) -> bytes:
    """Return a header and its text; ``body`` is the number of bytes that are to follow."""
    return _HEADER.pack(kind, number, len(text), flags, body, step) + text


def read_header(
    data: bytes | bytearray | memoryview, *kinds: bytes
) -> tuple[bytes, int, int, int, int, int]:
    """Return kind, number, bytes of text, flags, bytes of body and step of a frame of one of these kinds.

    Raises:
        ProtocolError: it is of another kind, or says that its text is longer than that of its kind can be.
    """
    header = _HEADER.unpack_from(data)
    if header[0] not in kinds or header[2] > _LARGEST_TEXT[header[0]]:
        raise ProtocolError("what arrived is no message of this connection.")
    return header
