"""Cases of how well boxes are guesses."""

from tables import NO_GRADIENT, case, offsets

NO_GRADIENT.add("detection_map")


def box(rng):
    low = rng.uniform(0, 0.6, 2)
    return [round(v, 3) for v in [*low, *(low + rng.uniform(0.1, 0.5, 2))]]


@case("detection_map", 20)
def detection_map(p):
    rng, classes = p.rng, 4
    counts = p.any([2, 3], [4, 1], [3, 3])
    labels = [[int(rng.randint(1, classes)), int(rng.randint(0, 3) == 0), *box(rng)] for _ in range(sum(counts))]
    guesses = []
    per_image = p.any([5, 4], [8, 6], [1, 9])
    first = 0
    for count, many in zip(counts, per_image):
        for _ in range(many):
            own = labels[first + int(rng.randint(count))]
            near = [round(v + d, 3) for v, d in zip(own[2:], rng.uniform(-0.04, 0.04, 4))]
            place = near if rng.rand() < 0.7 else box(rng)
            label = own[0] if rng.rand() < 0.8 else int(rng.randint(1, classes))
            guesses.append([label, round(float(rng.rand()), 4), *place])
        first += count
    wide = p.of(True, False)
    rows = labels if wide else [[row[0], *row[2:]] for row in labels]
    return {
        "DetectRes": [[len(guesses), 6], "float32", "values", [v for row in guesses for v in row]],
        "DetectRes@LOD": offsets(per_image),
        "Label": [[len(rows), 6 if wide else 5], "float32", "values", [v for row in rows for v in row]],
        "Label@LOD": offsets(counts),
    }, {
        "class_num": classes,
        "background_label": p.any(0, 2),
        "overlap_threshold": p.any(0.5, 0.3),
        "evaluate_difficult": p.any(True, False),
        "ap_type": p.of("integral", "11point"),
    }
