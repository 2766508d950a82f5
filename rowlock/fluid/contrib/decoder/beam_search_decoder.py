"""``fluid.contrib.decoder.beam_search_decoder``."""

from ....graph.layers.state_cells import BeamSearchDecoder, InitState, StateCell, TrainingDecoder
from ....names import listing, missing

__all__ = ["BeamSearchDecoder", "InitState", "StateCell", "TrainingDecoder"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
