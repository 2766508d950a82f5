"""``fluid.contrib.decoder.beam_search_decoder``."""

from ....graph.layers.state_cells import BeamSearchDecoder as BeamSearchDecoder
from ....graph.layers.state_cells import InitState as InitState
from ....graph.layers.state_cells import StateCell as StateCell
from ....graph.layers.state_cells import TrainingDecoder as TrainingDecoder
from ....names import publish_imports

publish_imports(__name__)
