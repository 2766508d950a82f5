"""``paddle.nn.decode``: beam search and the loop that runs decoders."""

from ..graph.layers.decoding import BeamSearchDecoder as _BeamSearchDecoder
from ..graph.layers.decoding import Decoder, dynamic_decode
from ..names import publish_listed

__all__ = ["BeamSearchDecoder", "Decoder", "dynamic_decode"]


class BeamSearchDecoder(_BeamSearchDecoder):
    """Keeps the most probable sequences, as in 1.x; lengths that are returned follow their beams."""

    tracks_own_finished = True


publish_listed(__name__)
