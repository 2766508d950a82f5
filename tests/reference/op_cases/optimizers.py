"""Cases of updates that shrink parameters, or take norms."""

from tables import *  # noqa: F403

STRENGTHS = (0.0, 0.3, 0.05)
update(
    "ftrl", "SquaredAccumulator LinearAccumulator LearningRate",
    l1=STRENGTHS, l2=(0.2, 0.0), lr_power=(-0.5, -0.7, -0.3),
)
update("proximal_gd", "LearningRate", l1=STRENGTHS, l2=(0.2, 0.0, 1.5))
update("proximal_adagrad", "Moment LearningRate", l1=STRENGTHS, l2=(0.2, 0.0, 1.5))
update(
    "lars_momentum", "Velocity LearningRate",
    mu=RATES, lars_coeff=(0.001, 0.3), lars_weight_decay=(0.0005, 0.2, 0.0),
)
update(
    "lamb", "LearningRate Moment1 Moment2 Beta1Pow Beta2Pow",
    beta1=RATES, beta2=(0.999, 0.9), epsilon=SMALL, weight_decay=(0.01, 0.0, 0.3),
)
update("dpsgd", "LearningRate", clip=(0.9, 0.1, 50.0), batch_size=(4.0, 16.0), sigma=(0.0,))


NO_GRADIENT.add("dgc_clip_by_norm")  # noqa: F405


@case("dgc_clip_by_norm", 6)  # noqa: F405
def dgc_clip_by_norm(p):
    step = [[1], "float32", "values", [p.of(3.0, 0.0, 7.0)]]
    attrs = {"rampup_begin_step": p.any(0.0, 3.0), "max_norm": p.of(0.5, 50.0)}
    return {"X": normal(p.any([3, 4], [5])), "current_step": step}, attrs  # noqa: F405
