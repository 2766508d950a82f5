"""Optimizers, regularizers, clips and initializers that programs write themselves, on the base classes of fluid.

``python tests/reference/own_parts.py`` writes ``own_parts.json`` where Paddle 1.8.5 is installed.
"""

import zlib
from pathlib import Path

import numpy as np

STEPS, ROWS, SIZE = 5, 8, 6
NAMES = ("bounded", "halved", "decoupled", "squashed", "elastic", "soft", "rotated")


class Parts:
    """Each method returns an optimizer, with the settings of the first layer's weight beside it."""

    def __init__(self, fluid):
        self.fluid, self.layers = fluid, fluid.layers

    def bounded(self):
        """Steps of bounded size, computed by layers; accumulators, and ops behind all updates."""
        layers = self.layers

        class Bounded(self.fluid.optimizer.Optimizer):
            def __init__(self, rate, bound, **settings):
                super().__init__(learning_rate=rate, **settings)
                self.type, self.bound = "bounded", bound

            def _create_accumulators(self, block, parameters):
                for parameter in parameters:
                    self._add_accumulator("mean", parameter)
                    self._add_accumulator("square", parameter, fill_value=0.1)
                    self._add_accumulator("power", parameter, "float32", 0.9, shape=[1])

            def _append_optimize_op(self, block, param_and_grad):
                parameter, grad = param_and_grad
                mean, square, power = (
                    self._get_accumulator(name, parameter) for name in ("mean", "square", "power")
                )
                layers.assign(mean * 0.9 + grad * 0.1, mean)
                layers.assign(square * 0.99 + layers.square(grad) * 0.01, square)
                rate = self._create_param_lr(param_and_grad) / (1.0 - power)
                step = layers.elementwise_mul(mean, rate) / layers.sqrt(square)
                operands = {"X": parameter, "Y": layers.clip(step, -self.bound, self.bound)}
                return block.append_op(
                    type="elementwise_sub",
                    inputs=operands,
                    outputs={"Out": parameter},
                    attrs={"axis": -1},
                    stop_gradient=True,
                )

            def _finish_update(self, block, parameters_and_grads):
                for parameter, grad in parameters_and_grads:
                    with parameter.block.program._optimized_guard([parameter, grad]):
                        power = self._get_accumulator("power", parameter)
                        attrs, ends = {"scale": 0.9}, {"X": [power]}
                        block.append_op(
                            type="scale", inputs=ends, outputs={"Out": [power]}, attrs=attrs
                        )

        rate = self.layers.exponential_decay(0.05, 2, 0.5)
        return Bounded(rate, 0.02, name="own"), {"learning_rate": 0.5}

    def halved(self):
        """An op of Paddle's with half the rate, which the optimizer's helper makes a variable for."""

        class Halved(self.fluid.optimizer.Optimizer):
            def __init__(self, rate):
                super().__init__(rate)
                self.type = "momentum"

            def _create_accumulators(self, block, parameters):
                for parameter in parameters:
                    self._add_accumulator("velocity", parameter)

            def _append_optimize_op(self, block, param_and_grad):
                parameter, grad = param_and_grad
                velocity = self._get_accumulator("velocity", parameter)
                rate = self.helper.create_variable_for_type_inference("float32")
                whole = {"X": self._create_param_lr(param_and_grad)}
                block.append_op(
                    type="scale", inputs=whole, outputs={"Out": rate}, attrs={"scale": 0.5}
                )
                operands = {
                    "Param": parameter,
                    "Grad": grad,
                    "Velocity": velocity,
                    "LearningRate": rate,
                }
                results = {"ParamOut": parameter, "VelocityOut": velocity}
                attrs = {"mu": 0.9, "use_nesterov": True}
                return block.append_op(
                    type=self.type, inputs=operands, outputs=results, attrs=attrs
                )

        return Halved(0.1), {}

    def decoupled(self):
        """Adam whose parameters shrink behind the update, by a schedule."""
        layers = self.layers

        class Decoupled(self.fluid.optimizer.AdamOptimizer):
            def apply_optimize(self, loss, startup_program, params_grads):
                ops = super().apply_optimize(loss, startup_program, params_grads)
                for parameter, grad in params_grads:
                    with parameter.block.program._optimized_guard([parameter, grad]):
                        layers.assign(parameter * (1.0 - self._learning_rate * 0.1), parameter)
                return ops

        return Decoupled(learning_rate=self.layers.noam_decay(8, 4)), {}

    def squashed(self):
        """Gradients changed before Adam clips, decays and takes them."""
        layers = self.layers

        class Squashed(self.fluid.optimizer.AdamOptimizer):
            def apply_gradients(self, params_grads):
                return super().apply_gradients([(p, layers.tanh(g)) for p, g in params_grads])

        decay = self.fluid.regularizer.L2Decay(0.1)
        return Squashed(learning_rate=0.05, regularization=decay), {}

    def elastic(self):
        """Decay by the sum of L1 and L2, of one parameter and of all others."""
        fluid = self.fluid

        class Elastic(fluid.regularizer.WeightDecayRegularizer):
            def __init__(self, share):
                super().__init__()
                self.share = share

            def __call__(self, param, grad, block):
                name = fluid.unique_name.generate("elastic")
                term = block.create_var(name=name, dtype=param.dtype, shape=param.shape)
                block.append_op(type="sign", inputs={"X": param}, outputs={"Out": term})
                both, scale = {"X": term, "Y": param}, {"scale": self.share}
                block.append_op(type="elementwise_add", inputs=both, outputs={"Out": term})
                block.append_op(
                    type="scale", inputs={"X": term}, outputs={"Out": term}, attrs=scale
                )
                return term

            def __str__(self):
                return "Elastic"

        optimizer = fluid.optimizer.SGD(0.1, regularization=Elastic(0.01))
        return optimizer, {"regularizer": Elastic(0.2)}

    def soft(self):
        """Gradients whose elements approach a limit."""
        fluid, layers = self.fluid, self.layers

        class Soft(fluid.clip.GradientClipBase):
            def __init__(self, limit):
                super().__init__()
                self.limit = limit

            def _static_clip(self, params_grads):
                pairs = []
                for parameter, grad in params_grads:
                    with parameter.block.program._optimized_guard([parameter, grad]):
                        soft = layers.tanh(grad * (1.0 / self.limit)) * self.limit
                    pairs.append((parameter, soft))
                return pairs

        return fluid.optimizer.SGD(0.1, grad_clip=Soft(0.3)), {}

    def rotated(self):
        """A weight that begins as a rotation, by an op put in front."""

        class Rotated(self.fluid.initializer.Initializer):
            def __call__(self, variable, block):
                rotation = np.linalg.qr(initial("rotation", variable.shape))[0]
                values = [float(value) for value in rotation.ravel()]
                return block._prepend_op(
                    type="assign_value",
                    outputs={"Out": variable},
                    attrs={
                        "shape": list(rotation.shape),
                        "dtype": variable.dtype,
                        "fp32_values": values,
                    },
                    stop_gradient=True,
                )

        return self.fluid.optimizer.SGD(0.1), {"initializer": Rotated()}


def initial(name, shape):
    """Return the value that a parameter begins with."""
    draw = np.random.RandomState(zlib.crc32(name.encode()) & 0xFFFF)
    return draw.uniform(-0.5, 0.5, shape).astype("float32")


def run(fluid, name, compiled=lambda main, loss: main):
    """Return the losses of all steps, and the sums of all persistable arrays behind them, by name."""
    layers, main, startup = fluid.layers, fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.data("x", [None, SIZE]), fluid.data("y", [None, 1])
        optimizer, settings = getattr(Parts(fluid), name)()
        attr = fluid.ParamAttr(**settings)
        hidden = layers.fc(x, SIZE, act="tanh", param_attr=attr)
        loss = layers.mean(layers.square_error_cost(layers.fc(hidden, 1), y))
        optimizer.minimize(loss)
    exe, scope, draw = fluid.Executor(fluid.CPUPlace()), fluid.Scope(), np.random.RandomState(0)
    rotation = "fc_0.w_0" if name == "rotated" else ""
    with fluid.scope_guard(scope):
        exe.run(startup)
        for parameter in main.all_parameters():
            if parameter.name != rotation:
                tensor = scope.find_var(parameter.name).get_tensor()
                tensor.set(initial(parameter.name, parameter.shape), fluid.CPUPlace())
        program, losses = compiled(main, loss), []
        for _ in range(STEPS):
            rows = draw.rand(ROWS, SIZE).astype("float32")
            feed = {"x": rows, "y": rows.sum(1, keepdims=True)}
            losses.append(float(np.mean(exe.run(program, feed, [loss])[0])))
        states = [v.name for v in main.list_vars() if v.persistable]
        arrays = {n: np.array(scope.find_var(n).get_tensor()) for n in sorted(states)}
    return {"losses": losses, "sums": {n: float(a.sum()) for n, a in arrays.items()}}


if __name__ == "__main__":
    import compact_json
    import paddle.fluid

    record = {name: run(paddle.fluid, name) for name in NAMES}
    compact_json.write(str(Path(__file__).with_suffix(".json")), record, 2)
