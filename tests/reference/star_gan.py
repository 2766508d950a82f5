"""A StarGAN on two places, two programs of one scope, and the losses that Paddle computes step after step.

``CPU_NUM=2 python tests/reference/star_gan.py`` writes ``star_gan.json`` where Paddle 1.8.5 is installed. There
programs that do not share replicas drift apart: the discriminator's program on place 1 would keep the generator
that it began with. And what the program that is shared from lacks would be one memory for both places. So that
program names all variables of the other, too.
"""

import json
import zlib
from pathlib import Path

import numpy as np

STEPS = 6
ROWS, SIZE, DOMAINS, FILTERS = 4, 16, 3, 8
RATE = 1e-4


def feeds(step):
    """Return the rows of a step: images, their domains, those that they are to have, and weights between images."""
    draw = np.random.RandomState(step)
    return {
        "image": draw.uniform(-1, 1, (ROWS, 3, SIZE, SIZE)).astype("float32"),
        "domain": draw.randint(0, 2, (ROWS, DOMAINS)).astype("float32"),
        "target": draw.randint(0, 2, (ROWS, DOMAINS)).astype("float32"),
        "alpha": draw.uniform(0, 1, ROWS).astype("float32"),
    }


def initial(name, shape):
    """Return the value that a parameter begins with."""
    draw = np.random.RandomState(zlib.crc32(name.encode()) & 0xFFFF)
    return (0.1 * draw.randn(*shape)).astype("float32")


class _Nets:
    """The layers of both nets; ``fluid`` is Paddle's, or one like it."""

    def __init__(self, fluid):
        self.fluid, self.layers = fluid, fluid.layers

    def _conv(self, x, count, size, stride, padding, name, bias=False):
        bias_attr = self.fluid.ParamAttr(name=name + "_b") if bias else False
        weight = self.fluid.ParamAttr(name=name + "_w")
        return self.layers.conv2d(
            x, count, size, stride, padding, param_attr=weight, bias_attr=bias_attr
        )

    def _norm(self, x, name):
        parts = [
            self.fluid.ParamAttr(name=name + part, trainable=False)
            for part in ("_scale", "_offset")
        ]
        return self.layers.instance_norm(x, param_attr=parts[0], bias_attr=parts[1])

    def generator(self, image, domain):
        layers, fluid = self.layers, self.fluid
        planes = layers.expand(layers.reshape(domain, [-1, DOMAINS, 1, 1]), [1, 1, SIZE, SIZE])
        x = layers.concat([image, planes], 1)
        x = layers.relu(self._norm(self._conv(x, FILTERS, 7, 1, 3, "g_in"), "g_in_norm"))
        x = layers.relu(self._norm(self._conv(x, 2 * FILTERS, 4, 2, 1, "g_down"), "g_down_norm"))
        y = layers.relu(self._norm(self._conv(x, 2 * FILTERS, 3, 1, 1, "g_res1"), "g_res1_norm"))
        x = x + self._norm(self._conv(y, 2 * FILTERS, 3, 1, 1, "g_res2"), "g_res2_norm")
        weight = fluid.ParamAttr(name="g_up_w")
        x = layers.conv2d_transpose(
            x, FILTERS, filter_size=4, stride=2, padding=1, param_attr=weight, bias_attr=False
        )
        x = layers.relu(self._norm(x, "g_up_norm"))
        return layers.tanh(self._conv(x, 3, 7, 1, 3, "g_out", bias=True))

    def critic(self, image):
        """Return how real parts of an image are, and scores of its domains."""
        layers = self.layers
        x = layers.leaky_relu(self._conv(image, FILTERS, 4, 2, 1, "d_1", bias=True), alpha=0.01)
        x = layers.leaky_relu(self._conv(x, 2 * FILTERS, 4, 2, 1, "d_2", bias=True), alpha=0.01)
        domains = self._conv(x, DOMAINS, SIZE // 4, 1, 0, "d_domain")
        return self._conv(x, 1, 3, 1, 1, "d_real"), layers.reshape(domains, [-1, DOMAINS])

    def wrong_domains(self, scores, domain, places):
        costs = self.layers.sigmoid_cross_entropy_with_logits(scores, domain)
        return self.layers.reduce_sum(costs) / float(ROWS // places)

    def penalty(self, real, fake, alpha):
        """Return the penalty of slopes other than 1 (Gulrajani et al., arXiv 1704.00028)."""
        layers, fluid = self.layers, self.fluid
        between = real + layers.elementwise_mul(fake - real, alpha, axis=0)
        score, _ = self.critic(between)
        parameters = fluid.default_main_program().all_parameters()
        fixed = [p.name for p in parameters if p.name.startswith("d_")]
        grad = fluid.gradients(score, between, no_grad_set=fixed)[0]
        grad = layers.reshape(grad, [-1, 3 * SIZE * SIZE])
        norm = layers.sqrt(layers.reduce_sum(layers.square(grad), dim=1) + 1e-16)
        return layers.reduce_mean(layers.square(norm - 1.0))


def _minimize(fluid, loss, prefix):
    names = [p.name for p in loss.block.program.all_parameters() if p.name.startswith(prefix)]
    adam = fluid.optimizer.Adam(RATE, beta1=0.5, beta2=0.999, name=prefix)
    adam.minimize(loss, parameter_list=names)


def build(fluid, places):
    """Return the startup program, and for each net its program and losses, the one it minimizes first."""
    nets, layers = _Nets(fluid), fluid.layers
    discriminator, generator, startup = fluid.Program(), fluid.Program(), fluid.Program()

    def data(name, *shape):
        return fluid.data(name, [None, *shape], "float32")

    with fluid.program_guard(generator, startup), fluid.unique_name.guard("g_"):
        image, domain = data("image", 3, SIZE, SIZE), data("domain", DOMAINS)
        target = data("target", DOMAINS)
        fake = nets.generator(image, target)
        back = nets.generator(fake, domain)
        score, scores = nets.critic(fake)
        cycle = layers.reduce_mean(layers.abs(image - back))
        wrong = nets.wrong_domains(scores, target, places)
        g_loss = 10.0 * cycle + wrong - layers.mean(score)
        _minimize(fluid, g_loss, "g_")
        g_losses = [g_loss, cycle, wrong]
    with fluid.program_guard(discriminator, startup), fluid.unique_name.guard("d_"):
        image, domain = data("image", 3, SIZE, SIZE), data("domain", DOMAINS)
        target, alpha = data("target", DOMAINS), data("alpha")
        fake = nets.generator(image, target)
        (score, scores), (of_fake, _) = nets.critic(image), nets.critic(fake)
        wrong, penalty = (
            nets.wrong_domains(scores, domain, places),
            nets.penalty(image, fake, alpha),
        )
        of_fake = layers.mean(of_fake)
        d_loss = of_fake - layers.mean(score) + 10.0 * penalty + wrong
        _minimize(fluid, d_loss, "d_")
        d_losses = [d_loss, of_fake, penalty, wrong]
    block = discriminator.global_block()
    for v in generator.list_vars():
        if v.persistable and not block.has_var(v.name):
            block.create_var(name=v.name, shape=v.shape, dtype=v.dtype, persistable=True)
    return startup, (discriminator, d_losses), (generator, g_losses)


def losses(fluid, places, place_list=None):
    """Train, and return for each step the mean losses of both programs."""
    startup, *parts = build(fluid, places)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.global_scope()
    exe.run(startup)
    shared, compiled = None, []
    for program, own_losses in parts:
        for p in program.all_parameters():
            if p.name.endswith(("_w", "_b")):
                scope.find_var(p.name).get_tensor().set(initial(p.name, p.shape), fluid.CPUPlace())
        run = fluid.CompiledProgram(program)
        if places > 1:
            run = run.with_data_parallel(
                loss_name=own_losses[0].name, share_vars_from=shared, places=place_list
            )
            shared = shared or run
        compiled.append((run, own_losses))
    steps = []
    for step in range(STEPS):
        for run, own_losses in compiled:
            feed = feeds(step)
            if run is not compiled[0][0]:
                del feed["alpha"]
            values = exe.run(run, feed=feed, fetch_list=[loss.name for loss in own_losses])
            steps.append([float(np.mean(value)) for value in values])
    return steps


if __name__ == "__main__":
    import paddle.fluid

    rows = [json.dumps([round(value, 7) for value in step]) for step in losses(paddle.fluid, 2)]
    Path(__file__).with_suffix(".json").write_text("[\n " + ",\n ".join(rows) + "\n]\n")
