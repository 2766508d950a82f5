"""``fluid.contrib.decoder``: decoders of which the user writes the cell."""

from . import beam_search_decoder
from .beam_search_decoder import BeamSearchDecoder, InitState, StateCell, TrainingDecoder

__all__ = ["BeamSearchDecoder", "InitState", "StateCell", "TrainingDecoder", "beam_search_decoder"]
