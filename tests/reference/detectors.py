"""Detectors, as their authors wrote them for Paddle 1.x, and what Paddle 1.8.5 computes.

``python tests/reference/detectors.py`` writes ``detectors.json`` where Paddle 1.8.5 is installed.
"""

import json
import zlib
from pathlib import Path

import numpy as np

STEPS, IMAGES, SIDE, CLASSES = 6, 2, 32, 3
ANCHORS = [6, 8, 12, 10, 20, 24]
MOST = 3  # objects of an image


def initial(name, shape):
    """Return the value that a parameter begins with."""
    draw = np.random.RandomState(zlib.crc32(name.encode()) & 0xFFFF)
    return draw.uniform(-0.3, 0.3, shape).astype("float32")


class Detectors:
    """Each method builds a net and returns its loss and what it finds."""

    def __init__(self, fluid):
        self.fluid, self.layers = fluid, fluid.layers

    def conv(self, x, filters, stride=1, act="relu"):
        return self.layers.conv2d(x, filters, 3, stride=stride, padding=1, act=act)

    def ssd(self):
        """Priors on three maps; a box matches an object or counts as background where it is wrong the most."""
        fluid, layers = self.fluid, self.layers
        image = fluid.data("image", [None, 3, SIDE, SIDE])
        box = fluid.data("box", [None, 4], lod_level=1)
        label = fluid.data("label", [None, 1], "int32", lod_level=1)
        maps = [self.conv(image, 6, 4)]
        for _ in range(2):
            maps.append(self.conv(maps[-1], 6, 2))
        heads = layers.multi_box_head(
            maps,
            image,
            SIDE,
            CLASSES + 1,
            [[2.0], [2.0, 3.0], [2.0]],
            min_ratio=20,
            max_ratio=90,
            clip=True,
        )
        places, scores, priors, variances = heads
        loss = layers.mean(layers.ssd_loss(places, scores, box, label, priors, variances))
        return loss, layers.detection_output(
            places, scores, priors, variances, score_threshold=0.3, keep_top_k=9
        )

    def yolo(self):
        """Two maps of one net; boxes of images whose sizes differ."""
        fluid, layers = self.fluid, self.layers
        image = fluid.data("image", [None, 3, SIDE, SIDE])
        box, label = (
            fluid.data("boxes", [None, MOST, 4]),
            fluid.data("labels", [None, MOST], "int32"),
        )
        score, size = fluid.data("scores", [None, MOST]), fluid.data("size", [None, 2], "int32")
        near = self.conv(self.conv(image, 6, 4), 6, 2)
        far = self.conv(near, 6, 2)
        losses, detections = [], []
        for x, mask, ratio in ((near, [0, 1], 8), (far, [2], 16)):
            x = self.conv(x, len(mask) * (5 + CLASSES), act=None)
            losses.append(
                layers.reduce_mean(
                    layers.yolov3_loss(
                        x, box, label, ANCHORS, mask, CLASSES, 0.5, ratio, score, scale_x_y=1.05
                    )
                )
            )
            anchors = [n for k in mask for n in ANCHORS[2 * k : 2 * k + 2]]
            detections.append(layers.yolo_box(x, size, anchors, CLASSES, 0.01, ratio))
        boxes = layers.concat([b for b, _ in detections], axis=1)
        chances = layers.transpose(layers.concat([s for _, s in detections], axis=1), [0, 2, 1])
        best = layers.multiclass_nms(
            boxes, chances, 0.05, 20, 9, 0.45, normalized=False, background_label=-1
        )
        return layers.sum(losses), best

    def rcnn(self):
        """A first stage on two maps; a second one reads each region from the map of its size. Nothing is drawn."""
        fluid, layers = self.fluid, self.layers
        image = fluid.data("image", [None, 3, SIDE, SIDE])
        box, info = fluid.data("box", [None, 4], lod_level=1), fluid.data("info", [None, 3])
        label = fluid.data("label", [None, 1], "int32", lod_level=1)
        crowd = fluid.data("crowd", [None, 1], "int32", lod_level=1)
        box = layers.scale(box, float(SIDE))
        first = self.conv(image, 6, 4)
        maps, losses, regions, chances = [first, self.conv(first, 6, 2)], [], [], []
        for x, size in zip(maps, (8.0, 16.0)):
            anchors, variances = layers.anchor_generator(
                x, [size], [0.5, 1.0, 2.0], [1.0, 1.0, 1.0, 1.0], stride=[size / 2, size / 2]
            )
            scores, deltas = self.conv(x, 3, act=None), self.conv(x, 12, act=None)
            candidates = layers.generate_proposals(
                layers.sigmoid(scores), deltas, info, anchors, variances, 50, 12, 0.7, 1.0
            )
            regions.append(candidates[0])
            chances.append(candidates[1])
            scores, deltas = (layers.transpose(part, [0, 2, 3, 1]) for part in (scores, deltas))
            logits, places, labels, expected, weight = layers.rpn_target_assign(
                layers.reshape(deltas, [0, -1, 4]), layers.reshape(scores, [0, -1, 1]),
                layers.reshape(anchors, [-1, 4]), layers.reshape(variances, [-1, 4]),
                box, crowd, info, 16, -1.0, 0.5, 0.5, 0.3, use_random=False,
            )  # fmt: skip
            labels = layers.cast(labels, "float32")
            losses.append(layers.reduce_mean(layers.sigmoid_cross_entropy_with_logits(logits, labels)))
            moved = layers.smooth_l1(places, expected, weight, weight, 3.0)
            losses.append(layers.reduce_mean(moved))
        rois = layers.collect_fpn_proposals(regions, chances, 2, 3, 15)
        rois, labels, expected, inside, outside = layers.generate_proposal_labels(
            rois, label, crowd, box, info, 12, 0.5, 0.4, 0.4, 0.0, class_nums=CLASSES + 1, use_random=False
        )
        levels, restore = layers.distribute_fpn_proposals(rois, 2, 3, 2, 8)
        bins = [layers.roi_align(x, own, 2, 2, 2.0 ** -(2 + k)) for k, (x, own) in enumerate(zip(maps, levels))]
        x = layers.gather(layers.concat(bins), restore)
        x = layers.fc(x, 12, act="relu")
        scores, places = layers.fc(x, CLASSES + 1), layers.fc(x, 4 * (CLASSES + 1))
        labels = layers.cast(labels, "int64")
        losses.append(layers.reduce_mean(layers.softmax_with_cross_entropy(scores, labels)))
        losses.append(layers.reduce_mean(layers.smooth_l1(places, expected, inside, outside, 1.0)))
        places = layers.reshape(places, [-1, CLASSES + 1, 4])
        boxes = layers.box_clip(layers.box_coder(rois, [0.1, 0.1, 0.2, 0.2], places, "decode_center_size", False, axis=1), info)
        best = layers.multiclass_nms(boxes, layers.softmax(scores), 0.1, 20, 9, 0.5, normalized=False)
        return layers.sum(losses), best


    def retinanet(self):
        """One stage on two maps, whose classes learn by the focal loss."""
        fluid, layers = self.fluid, self.layers
        image = fluid.data("image", [None, 3, SIDE, SIDE])
        box, info = fluid.data("box", [None, 4], lod_level=1), fluid.data("info", [None, 3])
        label = fluid.data("label", [None, 1], "int32", lod_level=1)
        crowd = fluid.data("crowd", [None, 1], "int32", lod_level=1)
        box = layers.scale(box, float(SIDE))
        first = self.conv(image, 6, 4)
        maps, scores, deltas, tables, spreads = [first, self.conv(first, 6, 2)], [], [], [], []
        for x, size in zip(maps, (8.0, 16.0)):
            anchors, variances = layers.anchor_generator(
                x, [size], [0.5, 1.0, 2.0], [1.0, 1.0, 1.0, 1.0], stride=[size / 2, size / 2]
            )
            tables.append(layers.reshape(anchors, [-1, 4]))
            spreads.append(layers.reshape(variances, [-1, 4]))
            logits = layers.transpose(self.conv(x, 3 * CLASSES, act=None), [0, 2, 3, 1])
            scores.append(layers.reshape(logits, [0, -1, CLASSES]))
            moved = layers.transpose(self.conv(x, 12, act=None), [0, 2, 3, 1])
            deltas.append(layers.reshape(moved, [0, -1, 4]))
        logits, places, labels, expected, weight, count = layers.retinanet_target_assign(
            layers.concat(deltas, 1), layers.concat(scores, 1), layers.concat(tables), layers.concat(spreads),
            box, label, crowd, info, CLASSES, 0.5, 0.4,
        )  # fmt: skip
        count = layers.reduce_sum(count)
        loss = layers.reduce_sum(layers.sigmoid_focal_loss(logits, labels, count, 2.0, 0.25))
        moved = layers.reduce_sum(layers.smooth_l1(places, expected, weight, weight, 3.0))
        loss = loss + moved / layers.cast(count, "float32")
        chances = [layers.sigmoid(part) for part in scores]
        best = layers.retinanet_detection_output(deltas, chances, tables, info, 0.4, 30, 9, 0.5)
        return loss, best


NETS = ("ssd", "yolo", "rcnn", "retinanet")


def feeds(fluid):
    """Return the feed of each step."""
    draw, steps = np.random.RandomState(7), []
    for _ in range(STEPS):
        counts = draw.randint(1, MOST + 1, IMAGES).tolist()
        low = draw.uniform(0, 0.6, (sum(counts), 2))
        boxes = np.concatenate([low, low + draw.uniform(0.1, 0.4, low.shape)], 1).astype("float32")
        labels = draw.randint(0, CLASSES, (len(boxes), 1)).astype("int32")
        own = (boxes, labels + 1, np.zeros_like(labels))
        lists = [fluid.create_lod_tensor(a, [counts], fluid.CPUPlace()) for a in own]
        padded = np.zeros((IMAGES, MOST, 6), "float32")
        begin = 0
        for n, count in enumerate(counts):
            own = boxes[begin : begin + count]
            padded[n, :count, :2], padded[n, :count, 2:4] = (
                (own[:, :2] + own[:, 2:]) / 2,
                own[:, 2:] - own[:, :2],
            )
            padded[n, :count, 4], padded[n, :, 5] = (
                labels[begin : begin + count, 0],
                draw.uniform(0.5, 1.0, MOST),
            )
            begin += count
        steps.append(
            {
                "image": draw.uniform(-1, 1, (IMAGES, 3, SIDE, SIDE)).astype("float32"),
                "box": lists[0],
                "label": lists[1],
                "crowd": lists[2],
                "info": np.tile(np.array([SIDE, SIDE, 1], "float32"), (IMAGES, 1)),
                "boxes": padded[:, :, :4].copy(),
                "labels": padded[:, :, 4].astype("int32"),
                "scores": padded[:, :, 5].copy(),
                "size": draw.randint(20, 90, (IMAGES, 2)).astype("int32"),
            }
        )
    return steps


def run(fluid, name, compiled=lambda main, loss: main):
    """Return the losses of a net as it trains, and what it finds at last, with its sequences."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        loss, detections = getattr(Detectors(fluid), name)()
        test = main.clone(for_test=True)
        fluid.optimizer.Momentum(0.01, 0.9).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        for parameter in main.all_parameters():
            tensor = scope.find_var(parameter.name).get_tensor()
            tensor.set(initial(parameter.name, parameter.shape), fluid.CPUPlace())
        program, losses = compiled(main, loss), []
        names = {v.name for v in main.global_block().vars.values() if getattr(v, "is_data", False)}
        for feed in feeds(fluid):
            feed = {key: value for key, value in feed.items() if key in names}
            (value,) = exe.run(program, feed, [loss])
            losses.append(float(np.mean(np.array(value))))
        (tensor,) = exe.run(test, feed, [detections], return_numpy=False)
        rows = np.array(tensor)
    return {
        "losses": losses,
        "detections": [[float("%.7g" % v) for v in row] for row in rows.tolist()],
        "lengths": tensor.recursive_sequence_lengths(),
    }


if __name__ == "__main__":
    from paddle import fluid as paddle_fluid

    record = {name: run(paddle_fluid, name) for name in NETS}
    lines = ["%s: %s" % (json.dumps(name), json.dumps(record[name])) for name in NETS]
    Path(__file__).with_suffix(".json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
