"""The mean average precision of detectors over a pass, which the program itself adds up."""

from __future__ import annotations

from typing import Any

from ...graph.layers.detection import detection_map
from ...graph.layers.helper import LayerHelper
from ...graph.layers.initializer import ConstantInitializer
from ...graph.layers.shape import cast, concat, fill_constant
from ...graph.program import unique_name
from ...graph.program.program import Program, program_guard
from ...graph.program.variable import Variable
from ...strategies.errors import InvalidValue


class DetectionMAP:
    """How well boxes are found, in a batch and in all batches since :meth:`reset`.

    Every place measures what it is fed; judgements stay where they were made, so that one Executor and place
    measure a pass.

    Args:
        input: [K, 6], a sequence for each image: class, score and box, in shares of the image.
        gt_label: [objects, 1] classes, a sequence for each image, as ``gt_box``, [objects, 4].
        gt_difficult: [objects, 1], 1 for an object that is hard to find.
        class_num: how many classes, with the background.
        background_label, overlap_threshold, evaluate_difficult, ap_version: as of ``detection_map``.

    Raises:
        InvalidValue: there is no ``class_num``.
    """

    def __init__(
        self,
        input: Variable,
        gt_label: Variable,
        gt_box: Variable,
        gt_difficult: Variable | None = None,
        class_num: int | None = None,
        background_label: int = 0,
        overlap_threshold: float = 0.5,
        evaluate_difficult: bool = True,
        ap_version: str = "integral",
    ) -> None:
        if class_num is None:
            raise InvalidValue(
                "DetectionMAP needs class_num, the number of classes with the background."
            )
        self.helper = LayerHelper("map_eval")
        columns = [gt_label] if gt_difficult is None else [gt_label, gt_difficult]
        label = concat([*(cast(column, gt_box.dtype) for column in columns), gt_box], axis=1)
        # In Paddle three variables that grow go before it.
        name = [unique_name.generate(self.helper.name) for _ in range(4)][-1] + "_has_state"
        self.has_state = self.helper.create_global(name, [1], "int32", ConstantInitializer(0))
        settings = (background_label, overlap_threshold, evaluate_difficult)
        self.cur_map = detection_map(input, label, class_num, *settings, ap_version=ap_version)
        self.accum_map = detection_map(
            input, label, class_num, *settings, has_state=self.has_state, ap_version=ap_version
        )
        fill_constant([1], "int32", 1, out=self.has_state)

    def get_map_var(self) -> tuple[Variable, Variable]:
        """Return the mean average precision of the batch, and that of the pass, [1] each."""
        return self.cur_map, self.accum_map

    def reset(self, executor: Any, reset_program: Program | None = None) -> None:
        """Begin a pass: what was measured before does not count."""
        program = reset_program or Program()
        with program_guard(program):
            state = program.current_block()._clone_variable(self.has_state)
            fill_constant([1], "int32", 0, out=state)
        executor.run(program)
