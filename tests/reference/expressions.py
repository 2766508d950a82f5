"""Expressions of layers that Paddle and Rowlock compute alike; read by Python 3.7, too.

``FLUID`` are Paddle 1.8.5's, ``PADDLE`` 3.3.1's. In an expression stand ``x`` and ``y`` (float32, fed, rows
unknown), ``w`` (float32, 3 by 4), ``v`` (4 numbers), ``i`` (int64, fed), ``k`` (int64, 3 by 1), ``b``
(booleans, 3 by 4), ``im`` (an image), ``np``, and the modules: ``L`` is fluid.layers, ``F`` nn.functional.
"""

import numpy as np

SHAPES = {
    "x": ([-1, 4], "float32"),
    "y": ([-1, 4], "float32"),
    "w": ([3, 4], "float32"),
    "v": ([4], "float32"),
    "i": ([-1, 4], "int64"),
    "k": ([3, 1], "int64"),
    "b": ([3, 4], "bool"),
    "im": ([1, 4, 4, 4], "float32"),
}


def listed(text):
    return [one.strip() for line in text.strip().splitlines() for one in line.split(" | ")]


OPERATORS = """
x + 1 | 1 + x | x - 2.5 | 2.5 - x | x * 3 | 3 * x | x / 4 | 4 / x | x ** 2 | 2 ** x | -x
x + y | x - y | x * y | x / y | w ** 2.0 | x + w | w - v | i + 3 | 3 - i | i * 2 | i / 2 | i // 2 | i % 3
i // i | i % i | 7 / w | 1 / i | x + i | i + x | w * i | x / i
x == y | x != 1 | x < 2 | x <= y | x > 0.5 | x >= y | i == 2 | i != i | 2 > x | 1 >= i
x.astype('int32') | i.astype('float32') | b.astype('int64')
w[0] | w[-1] | w[1:3] | w[:, 1] | w[0, 1] | w[1:, :-1] | w[:, 1:1000] | w[::-1] | w[::-1, ::-1] | w[-2:]
w[L.fill_constant([1], 'int32', 1)] | w[L.fill_constant([1], 'int32', 1):, 2] | w[:, L.fill_constant([1], 'int32', 1):3]
x[0] | x[:2] | x[:, -1] | x[1:2, 0] | w[0:3:2] | w[:, 3:0:-1] | w[0:3:2, 1] | im[0, 1:3, :, ::-1]
"""

FLUID_LAYERS = """
L.argsort(w)[0] | L.argsort(w)[1] | L.argsort(w, axis=0, descending=True)[0] | L.cumsum(w)
L.cumsum(w, axis=0, exclusive=True) | L.cumsum(w, axis=1, reverse=True) | L.gather_nd(w, k)
L.scatter(w, L.fill_constant([1], 'int64', 2), w[0:1]) | L.has_inf(w) | L.has_nan(w) | L.isfinite(w)
L.scatter(w, L.fill_constant([1], 'int64', 2), w[0:1], overwrite=False)
L.pad(w, [0, 1, 1, 2], pad_value=0.5) | L.pad2d(im, [1, 0, 0, 2], 'reflect') | L.pad2d(im, [1, 1, 1, 1])
L.pad2d(im, [1, 0, 0, 1], 'edge') | L.reduce_all(b) | L.reduce_all(b, dim=0) | L.reduce_any(b, dim=[1], keep_dim=True)
L.elementwise_mod(i, i) | L.elementwise_floordiv(i, i) | L.autoincreased_step_counter() | L.reverse(w, [0, 1])
L.strided_slice(w, [0, 1], [0, 3], [3, 0], [2, -1]) | L.unstack(w)[1] | L.size(w) | L.rank(im) | L.sum(w)
L.sum([w, w]) | L.is_empty(w) | L.less_than(x, y) | L.less_than(x, y, force_cpu=True)
L.less_equal(x, y, cond=L.create_tensor('bool')) | L.logical_not(b) | L.logical_xor(b, b, out=L.create_tensor('bool'))
L.logical_and(b, b) | L.equal(i, i) | L.not_equal(i, i)
L.Normal(0.5, 2.0).log_prob(w) | L.Normal(0.5, 2.0).entropy() | L.Normal(0.5, 2.0).kl_divergence(L.Normal(1.0, 3.0))
L.Uniform(-9.0, 9.0).log_prob(w) | L.Uniform(0.5, 2.0).entropy() | L.Categorical(w).entropy()
L.Categorical(w).kl_divergence(L.Categorical(w * 2))
L.similarity_focus(im, 1, [0, 2]) | L.similarity_focus(im, 3, [1]) | L.iou_similarity(w, x) | L.iou_similarity(w, w, False)
L.prior_box(im, im, [2.0], [3.0], [1.0, 2.0], flip=True)[0] | L.prior_box(im, im, 1.5, clip=True, steps=[0.5, 2.0])[1]
L.density_prior_box(im, im, [2], [1.5], [1.0, 2.0], flatten_to_2d=True)[0] | L.polygon_box_transform(im)
L.anchor_generator(im, [8.0, 16.0], [0.5, 2.0], stride=[4.0, 4.0])[0] | L.anchor_generator(im, 8.0, 1.0, stride=(4.0, 4.0))[1]
L.continuous_value_model(L.abs(w), L.abs(w[:, :2])) | L.continuous_value_model(w, w[:, :2], False)
L.gather_tree(L.reshape(i, [-1, 2, 2]), L.reshape(i % 2, [-1, 2, 2]))
"""

TENSORS = """
paddle.argmax(w) | paddle.argmax(w, axis=1) | paddle.argmax(w, axis=0, keepdim=True, dtype='int32') | paddle.argmin(w, axis=-1)
paddle.argmin(w, keepdim=True) | paddle.topk(w, 2)[0] | paddle.topk(w, 2)[1] | paddle.topk(w, 2, axis=0)[0]
paddle.topk(w, 2, largest=False)[1] | paddle.sum(w) | paddle.sum(w, 1, 'float64') | paddle.sum(b) | paddle.sum(i, axis=[0, 1], keepdim=True)
paddle.prod(w, 0) | paddle.prod(i, dtype='float32') | paddle.concat([w, w], axis=-1) | paddle.pow(w, 2) | paddle.pow(x, y)
paddle.pow(i, 2) | paddle.round(w) | paddle.round(w, decimals=1) | paddle.where(b, w, x) | paddle.where(w > 0, w, 0.0)
paddle.where(b, v, w) | paddle.clip(w) | paddle.clip(w, 0.5) | paddle.clip(w, max=0.25) | paddle.clip(i, 2, 5)
paddle.ones([2, 3]) | paddle.zeros([2], 'int64') | paddle.full([2], 1.5) | paddle.full([2], 3) | paddle.full([1], True)
paddle.full_like(w, 2) | paddle.ones_like(i) | paddle.zeros_like(w, dtype='int32') | paddle.empty_like(w) * 0
paddle.arange(5) | paddle.arange(1, 4, 0.5) | paddle.arange(5, 1, -2) | paddle.linspace(0, 1, 5) | paddle.eye(2, 3)
paddle.tril(w) | paddle.triu(w, 1) | paddle.diag(v) | paddle.diag(v, 1, 2.0) | paddle.diag(v, -1) | paddle.diag(w) | paddle.diag(w, 1)
paddle.meshgrid(v, v)[0] | paddle.meshgrid([v, v])[1] | paddle.assign(w) | paddle.assign([1.5, 2.5]) | paddle.add_n([w, w, x])
paddle.mod(i, i) | paddle.floor_divide(i, i) | paddle.floor_divide(i - 5, paddle.full_like(i, 3)) | paddle.mm(w, paddle.t(w)) | paddle.bmm(im[0], im[0])
paddle.mv(w, v) | paddle.dot(w, w) | paddle.addmm(w[:, :3], w, paddle.t(w), 0.5, 2.0) | paddle.kron(w, w[:2, :2]) | paddle.kron(v, w)
paddle.mean(w, 1) | paddle.max(w, [0, 1]) | paddle.min(w, -1, True) | paddle.all(b) | paddle.any(b, 1, keepdim=True)
paddle.var(w) | paddle.var(w, 1, False) | paddle.std(w, 0, keepdim=True) | paddle.logsumexp(w) | paddle.logsumexp(w, 1, True)
paddle.norm(w) | paddle.norm(w, 1, axis=1) | paddle.norm(w, 3, axis=0) | paddle.norm(w, float('inf'), axis=1) | paddle.norm(w, 'fro', axis=[0, 1])
paddle.dist(w, x) | paddle.dist(w, x, 1) | paddle.cumsum(w) | paddle.cumsum(w, 1) | paddle.cumsum(i, 0, 'float32')
paddle.trace(w) | paddle.trace(im, 1, 2, 3) | paddle.log2(x) | paddle.log10(x) | paddle.sinh(w) | paddle.cosh(w) | paddle.tan(w)
paddle.stanh(w) | paddle.isnan(w / (w - w)) | paddle.isinf(w / (w - w)) | paddle.isfinite(w / (w - w)) | paddle.multiplex([w, w * 2], (k % 2).astype('int32'))
paddle.numel(w) | paddle.rank(im) | paddle.shape(w) | paddle.reshape(w, [-1, 2]) | paddle.transpose(im, [0, 2, -1, 1])
paddle.chunk(w, 2, axis=1)[1] | paddle.unbind(w)[1] | paddle.unbind(w, 1)[0] | paddle.squeeze(im) | paddle.squeeze(im, [0, 1])
paddle.unsqueeze(w, [0, 2]) | paddle.flatten(im, 1, 2) | paddle.expand(w[0:1], [3, 4]) | paddle.expand(v, [2, -1]) | paddle.broadcast_to(v, [3, 4])
paddle.expand_as(v, w) | paddle.expand_as(w[0:1], x) | paddle.tile(w, [2, 1, 2]) | paddle.tile(im, [2]) | paddle.flip(w, [0]) | paddle.flip(w, -1)
paddle.roll(w, 1) | paddle.roll(w, -1, 1) | paddle.roll(w, [1, 2], [0, 1]) | paddle.gather(w, k) | paddle.gather(w, k, axis=1)
paddle.index_select(w, k[:, 0], axis=1) | paddle.index_sample(w, k) | paddle.gather_nd(w, k) | paddle.scatter(w, k[:, 0], x)
paddle.scatter_nd(k, w, [5, 4]) | paddle.scatter_nd_add(w, k, w) | paddle.shard_index(k, 4, 2, 0) | paddle.reshape_(w, [4, 3]) | paddle.tanh_(w)
paddle.slice(w, [0, 1], [1, 0], [3, 2]) | paddle.strided_slice(w, [1], [0], [4], [2]) | paddle.unstack(w)[2] | paddle.stack([w, w], -1)
paddle.less_than(w, x) | paddle.greater_equal(w, x) | paddle.equal(i, i) | paddle.not_equal(w, v) | paddle.logical_and(b, b) | paddle.logical_not(b)
paddle.logical_xor(b, w > 1) | paddle.equal_all(w, w) | paddle.equal_all(w, v) | paddle.allclose(w, w + 1e-9) | paddle.allclose(w, x)
paddle.is_empty(w) | paddle.argsort(w, 0) | paddle.argsort(w, descending=True) | paddle.sort(w) | paddle.sort(w, 0, True) | paddle.median(w, 1)
paddle.median(w) | paddle.median(v, 0, keepdim=True) | paddle.cross(w[:, 1:], w[:, :3]) | paddle.cross(w, w * w) | paddle.increment(paddle.ones([1]), 2.0)
paddle.add(w, v) | paddle.maximum(w, v) | paddle.cast(w, 'int64') | paddle.to_tensor([1, 2]) | paddle.split(w, [1, -1], 1)[1] | paddle.matmul(w, w, False, True)
"""

FUNCTIONAL = """
F.cross_entropy(w, k) | F.cross_entropy(w, k[:, 0]) | F.cross_entropy(w, k, reduction='none') | F.cross_entropy(w, k[:, 0], reduction='none')
F.cross_entropy(w, k, ignore_index=2) | F.cross_entropy(w, k, weight=x[0]) | F.cross_entropy(w, k, x[0], 1) | F.cross_entropy(w, k, x[0], reduction='sum')
F.cross_entropy(w, F.softmax(w * 2), soft_label=True) | F.cross_entropy(F.softmax(w), k, use_softmax=False)
F.cross_entropy(im, paddle.zeros([1, 4, 4], 'int64'), axis=1)
F.softmax_with_cross_entropy(w, k) | F.one_hot(k, 3) | F.one_hot(i, num_classes=9) | F.softplus(w) | F.softplus(w, 2, 1.5) | F.softplus(x * 10, threshold=5)
F.dropout(w, 0.3, training=False) | F.dropout(w, 0.3, training=False, mode='downscale_in_infer') | F.dropout(w, 0.0) | F.dropout(w, 1.0)
F.avg_pool2d(im, 2) | F.avg_pool2d(im, 3, 2, 1) | F.avg_pool2d(im, 3, 2, 1, exclusive=False) | F.avg_pool2d(im, 2, divisor_override=3)
F.avg_pool2d(im, 3, 2, ceil_mode=True) | F.max_pool2d(im, 2) | F.max_pool2d(im, [2, 3], 1, 'SAME') | F.max_pool2d(im, 3, 2, ceil_mode=True)
F.max_pool1d(im[0], 2) | F.max_pool1d(im[0], 3, 1, 1) | F.avg_pool1d(im[0], 3, 2, 1) | F.avg_pool1d(im[0], 3, 2, 1, exclusive=False)
F.adaptive_avg_pool2d(im, [2, 4]) | F.adaptive_max_pool2d(im, 2) | F.adaptive_avg_pool1d(im[0], 2) | F.adaptive_max_pool1d(im[0], 2)
F.conv2d(im, im) | F.conv2d(im, im[:, :, :2, :3], v[:1], 2, 1) | F.conv1d(im[0], im[0], v, 1, 2) | F.linear(w, paddle.t(w), v[:3])
F.embedding(k, w) | F.embedding(k, w, padding_idx=1) | F.layer_norm(w, 4) | F.layer_norm(w, [4], v, v, 1e-3) | F.layer_norm(im, [4, 4])
F.normalize(w) | F.normalize(w, 1, axis=0) | F.cosine_similarity(w, x) | F.pixel_shuffle(im, 2)
F.pad(w, [1, 0, 2, 1], value=0.5) | F.pad(im, [1, 2, 0, 1]) | F.pad(im, [1, 2, 0, 1], 'reflect') | F.pad(im, [1, 2, 0, 1], 'replicate', data_format='NHWC') | F.pad(im[0], [1, 2], value=1.5, data_format='NCL')
F.temporal_shift(paddle.tile(im, [4, 1, 1, 1]) * 1.5, 2) | F.leaky_relu(w) | F.softmax(w, 0) | F.softmax(i, dtype='float32') | F.log_softmax(w) | F.log_softmax(w, 0)
F.swish(w) | F.relu6(w * 5) | F.log_sigmoid(w) | F.hardsigmoid(w) | F.hardswish(w) | F.hardtanh(w) | F.hardtanh(w, -0.5, 0.25) | F.hardshrink(w)
F.softshrink(w) | F.softshrink(w, 0.25) | F.tanhshrink(w) | F.thresholded_relu(w) | F.thresholded_relu(w, 0.5, -1.0) | F.selu(w) | F.prelu(w, v[:1])
F.prelu(im - 4, v) | F.maxout(im, 2) | F.maxout(im, 2, axis=3) | F.relu_(w) | F.elu_(w, 0.5) | F.softmax_(w) | F.gelu(w) | F.elu(w, 0.2)
F.mse_loss(w, x) | F.mse_loss(w, x, 'sum') | F.square_error_cost(w, x) | F.l1_loss(w, x) | F.l1_loss(w, x, 'none') | F.smooth_l1_loss(w, x)
F.smooth_l1_loss(w, x, 'none', 0.5) | F.smooth_l1_loss(w, x, delta=2.0, is_huber=False) | F.kl_div(w, x) | F.kl_div(w, x, 'batchmean') | F.kl_div(w, x, 'sum', True)
F.kl_div(w, F.relu(w), 'none') | F.log_loss(F.sigmoid(w[:, :1]), b[:, :1].astype('float32')) | F.binary_cross_entropy(F.sigmoid(w), b.astype('float32'))
F.binary_cross_entropy(b.astype('float32'), F.sigmoid(w)) | F.binary_cross_entropy(F.sigmoid(w), b.astype('float32'), v, 'sum')
F.binary_cross_entropy_with_logits(w * 9, b.astype('float32')) | F.binary_cross_entropy_with_logits(w, b.astype('float32'), v, 'none', x[0])
F.nll_loss(w, k[:, 0]) | F.nll_loss(w, k[:, 0], x[0]) | F.nll_loss(w, k[:, 0], ignore_index=1) | F.nll_loss(w, k[:, 0], reduction='none') | F.nll_loss(im, paddle.ones([1, 4, 4], 'int64'))
F.margin_ranking_loss(w, x, paddle.sign(w)) | F.margin_ranking_loss(w, x, paddle.sign(x), 0.5, 'sum') | F.label_smooth(w) | F.label_smooth(w, x[0:1], 0.2)
F.dice_loss(F.softmax(w), k) | F.sigmoid_focal_loss(w, b.astype('float32')) | F.sigmoid_focal_loss(w, b.astype('float32'), v[:1], 0.5, 1.5, 'mean')
F.npair_loss(w, w * 2, k[:, 0]) | F.alpha_dropout(w, 0.4, training=False) | F.dropout2d(im, training=False)
"""

# Windows over sequences, images and volumes: w and im in other shapes.
WINDOWS = """
F.conv1d(im[0], im[0], v, 1, [2, 1]) | F.conv1d(im[0], im[0], v, 1, 'SAME', data_format='NLC') | F.conv1d(im[0], im[0, :, :2], v, 2, 2, 2, 2)
F.conv1d_transpose(im[0], im[0], v, 2, 1) | F.conv1d_transpose(im[0], im[0, :, :3], None, 2, [1, 0], 1) | F.conv1d_transpose(im[0], im[0, :, :1], None, 2, groups=2, dilation=2)
F.conv1d_transpose(im[0], im[0], v, 3, 1, output_size=12) | F.conv1d_transpose(im[0], im[0], v, 2, data_format='NLC')
F.conv2d_transpose(im, paddle.reshape(im, [4, 4, 2, 2]), v, 2, 1) | F.conv2d_transpose(im, paddle.reshape(im, [4, 1, 4, 4]), v[:1], [2, 1], [0, 1], [1, 0])
F.conv2d_transpose(im, paddle.reshape(im, [4, 2, 2, 4]), None, 1, [1, 0, 2, 1], groups=2) | F.conv2d_transpose(im, paddle.reshape(im, [4, 4, 2, 2]), None, 2, 1, output_size=[7, 6])
F.conv2d_transpose(im, paddle.reshape(im, [4, 4, 4, 1]), v, 2, 'SAME') | F.conv2d_transpose(im, paddle.reshape(im, [4, 1, 4, 4]), v[:1], 2, data_format='NHWC')
F.conv2d_transpose(im, paddle.reshape(im, [4, 1, 4, 4]), None, 2, 1, groups=4) | F.conv2d_transpose(im, paddle.reshape(im, [4, 2, 2, 4]), None, 1, 0, dilation=2)
F.conv3d(paddle.reshape(im, [1, 2, 2, 4, 4]), paddle.reshape(im, [4, 2, 2, 2, 2]), v, [1, 2, 1], [0, 1, 1])
F.conv3d(paddle.reshape(im, [1, 2, 2, 4, 4]), paddle.reshape(im, [8, 1, 2, 2, 2]), None, 1, 'SAME', groups=2)
F.conv3d(paddle.reshape(im, [1, 2, 4, 4, 2]), paddle.reshape(im, [4, 2, 2, 2, 2]), v, 1, [1, 0, 0, 1, 1, 1], data_format='NDHWC')
F.conv3d_transpose(paddle.reshape(im, [1, 2, 2, 4, 4]), paddle.reshape(im, [2, 4, 2, 2, 2]), v, 2, 1, [1, 0, 1])
F.conv3d_transpose(paddle.reshape(im, [1, 4, 4, 2, 2]), paddle.reshape(im, [2, 2, 2, 2, 4]), None, [1, 2, 1], dilation=2, data_format='NDHWC')
F.max_pool1d(im[0], 2, return_mask=True)[0] | F.max_pool1d(im[0], 3, 1, 1, True)[1] | F.max_pool2d(im, 2, return_mask=True)[1] | F.max_pool2d(im, [2, 3], 1, 1, True)[0]
F.max_pool2d(-im, 3, 2, 1, True)[1] | F.max_pool2d(im, 3, 2, return_mask=True, ceil_mode=True)[1] | F.max_pool2d(im, 2, data_format='NHWC') | F.max_pool2d(im, 2, 2, [1, 0, 0, 1])
F.max_pool3d(paddle.reshape(im, [1, 2, 2, 4, 4]), 2) | F.max_pool3d(paddle.reshape(im, [1, 2, 2, 4, 4]), [1, 2, 3], 1, [0, 1, 1], True)[1]
F.max_pool3d(paddle.reshape(im, [1, 2, 2, 4, 4]), 2, 2, 1) | F.max_pool3d(paddle.reshape(im, [1, 2, 4, 4, 2]), 2, data_format='NDHWC', ceil_mode=True)
F.avg_pool3d(paddle.reshape(im, [1, 2, 2, 4, 4]), 2) | F.avg_pool3d(paddle.reshape(im, [1, 2, 2, 4, 4]), 2, 1, 1, exclusive=False)
F.avg_pool3d(paddle.reshape(im, [1, 2, 2, 4, 4]), [2, 2, 1], 1, 'SAME') | F.avg_pool3d(paddle.reshape(im, [1, 2, 2, 4, 4]), 2, divisor_override=5)
F.avg_pool1d(im[0], 3, 2, [1, 1]) | F.avg_pool1d(im[0], 2, 1, 'SAME') | F.avg_pool2d(im, 2, data_format='NHWC') | F.avg_pool2d(im, 3, 2, [[0, 0], [0, 0], [1, 0], [0, 1]])
F.adaptive_avg_pool1d(im[0], 3) | F.adaptive_avg_pool2d(im, [None, 3]) | F.adaptive_avg_pool2d(im, 3, 'NHWC') | F.adaptive_avg_pool3d(paddle.reshape(im, [1, 2, 2, 4, 4]), [1, 3, None])
F.adaptive_max_pool1d(im[0], 3, True)[1] | F.adaptive_max_pool2d(im, [3, 2]) | F.adaptive_max_pool2d(im, [3, 2], True)[1] | F.adaptive_max_pool3d(paddle.reshape(im, [1, 2, 2, 4, 4]), [1, 3, 2], True)[1]
F.max_unpool1d(*F.max_pool1d(im[0], 2, return_mask=True), 2) | F.max_unpool2d(*F.max_pool2d(im, 2, return_mask=True), 2) | F.max_unpool2d(*F.max_pool2d(im, 2, return_mask=True), 2, output_size=[5, 4])
F.max_unpool2d(*F.max_pool2d(im, 3, 1, return_mask=True), 3, 1, output_size=[1, 4, 4, 4]) | F.max_unpool3d(*F.max_pool3d(paddle.reshape(im, [1, 2, 2, 4, 4]), 2, return_mask=True), 2)
"""

# Gradients of sums with respect to w.
SLOPES = """
F.cross_entropy(w, k, x[0], 1) | F.cross_entropy(w, k[:, 0], reduction='none') | F.softplus(w, 2, 1.5) | F.selu(w) | F.prelu(w, v[:1])
F.kl_div(w, x) | F.binary_cross_entropy(F.sigmoid(w), b.astype('float32')) | F.nll_loss(w, k[:, 0], x[0])
F.sigmoid_focal_loss(w, b.astype('float32')) | F.npair_loss(w, w * 2, k[:, 0]) | F.normalize(w) | F.log_softmax(w) | F.softshrink(w)
F.thresholded_relu(w, 0.5) | F.pad(w, [1, 0, 2, 1]) * 2 | paddle.var(w, 0) | paddle.logsumexp(w) | paddle.norm(w, 3) | paddle.roll(w, 1, 0) * x
paddle.sort(w) * x | paddle.where(b, w, v) * x | paddle.clip(w, -0.5, 1.0) * x | paddle.tril(w) * x | paddle.gather(w, k[:, 0]) * x | w[::2, 1:] * 3
paddle.scatter_nd(k, w, [5, 4]) * paddle.reshape(paddle.arange(5, dtype='float32'), [5, 1]) | paddle.expand(w[:, :1], [3, 4]) * x | paddle.cumsum(w) * paddle.cumsum(w)
"""

# Elements given another place, or read and written at indices.
PLACES = """
paddle.diagflat(w) | paddle.diagflat(v, -1) | paddle.diagonal(im, 1, 2, 3) | paddle.diagonal(w) | paddle.diag(v[:3], -1, 2.0)
paddle.trace(im, -1, 3, 1) | F.diag_embed(w, 1, 0, 2) | paddle.logspace(0, 2, 3) | paddle.logspace(1, 3, 5, 2.0)
paddle.tril_indices(3, 4, 1) | paddle.triu_indices(3) | paddle.tril(im, -1) | paddle.roll(w, [1, 2], [0, 1]) | paddle.roll(im, 5)
paddle.flip(im, [1, -1]) | paddle.rot90(w) | paddle.rot90(w, 2) | paddle.rot90(w, -1) | paddle.rot90(im, 3, [1, 3])
paddle.moveaxis(im, [0, 1], [2, -1]) | paddle.moveaxis(im, 3, 1) | paddle.swapaxes(im, 1, -1) | paddle.crop(w, [2, 2], [1, 2]) | paddle.crop(w)
paddle.crop(w, [-1, 2], [1, 0]) | paddle.repeat_interleave(w, 2) | paddle.repeat_interleave(w, 3, 1) | paddle.repeat_interleave(x, 2, 0)
paddle.tensor_split(v, 3)[0] | paddle.tensor_split(w, [1, 3], 1)[1] | paddle.hsplit(w, 2)[1] | paddle.vsplit(w, [1, 2])[2] | paddle.dsplit(im[0], 2)[0]
paddle.take_along_axis(w, k, 1) | paddle.take_along_axis(w, k, 0) | paddle.take_along_axis(im, paddle.ones([1, 4, 2, 4], 'int64') * 3, 2)
paddle.put_along_axis(w, k, 9.0, 1) | paddle.put_along_axis(w, k, w[:, :1], 1, 'add') | paddle.put_along_axis(w, k, x[:, :1] + 0 * w[:, :1], 1)
paddle.index_add(w, k[:, 0], 0, x + 0 * w) | paddle.index_add(im, k[:, 0], 2, im[:, :, :3]) | paddle.index_put(w, (k[:, 0], k[:, 0]), v[:3])
paddle.index_put(w, (k, k), v[0:1], True) | paddle.masked_fill(w, b, 2.5) | paddle.masked_fill(w, b[0], -1) | paddle.isclose(w, w + 1e-9)
paddle.isclose(w, x, 0.5) | paddle.linspace(paddle.full([1], 1.5), 3, 4) | paddle.meshgrid(v, k[:, 0].astype('float32'))[1]
paddle.shard_index(k, 5, 3, 1, -3) | paddle.unbind(im, 2)[3] | paddle.is_empty(x) | paddle.allclose(w, w * 1.01, 0.1) | paddle.eye(3, dtype='int64')
F.pixel_unshuffle(im, 2) | F.pixel_unshuffle(im, 2, 'NHWC') | F.channel_shuffle(im, 2) | F.channel_shuffle(im, 2, 'NHWC')
F.pixel_shuffle(im, 2, 'NHWC') | F.temporal_shift(paddle.tile(im, [4, 1, 1, 1]) * 1.5, 2, 0.3, data_format='NHWC') | F.unfold(im, [2, 3], 2, [1, 0], 1)
F.unfold(im, 3, 1, [0, 1, 2, 0], [1, 2])
"""

PLACES_SLOPES = """
paddle.diagonal(w, 1) * v[:3] | F.diag_embed(w, -1) * 2 | paddle.trace(w, 1) * 3 | paddle.rot90(w) * paddle.t(x) | paddle.crop(w, [2, 2], [1, 2]) * 3
paddle.repeat_interleave(w, 2) * paddle.arange(24, dtype='float32') | paddle.take_along_axis(w, k, 1) * x[:, :1]
paddle.put_along_axis(w, k, w[:, :1], 1, 'add') * x | paddle.put_along_axis(w, k, w[:, :1] * 2, 1) * x | paddle.index_add(w * 1, k[:, 0], 0, w * 2) * x
paddle.index_put(w * 1, (k[:, 0], k[:, 0]), w[:, 0]) * x | paddle.masked_fill(w, b, 2.5) * x | paddle.index_select(w, k[:, 0], 1) * x[:, :3]
paddle.index_sample(w, k) * x[:, :1] | paddle.meshgrid(w[0], w[1])[0] * paddle.meshgrid(w[0], w[1])[1] | paddle.scatter_nd_add(w, k, w * x) * x
F.unfold(paddle.reshape(w, [1, 1, 3, 4]), 2, 1, 1) ** 2 | paddle.unbind(w, 1)[2] * 2 | paddle.multiplex([w, w * 2], (k % 2).astype('int32')) * x
"""

# Functions made of others.
MORE = """
paddle.neg(w) | paddle.negative(i) | paddle.positive(w) | paddle.remainder(i, i + 2) | paddle.floor_mod(w, x) | paddle.lerp(w, x, 0.25) | paddle.lerp(w, x, y)
paddle.logaddexp(w, x) | paddle.hypot(w, x) | paddle.ldexp(w, paddle.cast(i, 'int32')) | paddle.logit(x / 4) | paddle.logit(w, 0.1) | paddle.heaviside(w, x)
paddle.fmax(w, x) | paddle.fmin(w, v) | paddle.fmax(w / (w - w) * 0, x) | paddle.nan_to_num(w / (w - w)) | paddle.nan_to_num(w / (w - w), 1.0, 2.0, 3.0)
paddle.isposinf(w / (w - w)) | paddle.isneginf(w / (w - w)) | paddle.isreal(w) | paddle.conj(w) | paddle.sgn(w) | paddle.sinc(w) | paddle.sinc(w - w)
paddle.clone(w) | paddle.searchsorted(paddle.sort(v), w)
paddle.bucketize(w, paddle.sort(v), out_int32=True) | paddle.amax(w) | paddle.amax(w, 1, True) | paddle.amin(i, [0, 1]) | paddle.count_nonzero(b) | paddle.count_nonzero(w, 1, True)
paddle.nansum(w / (w - w) * 0) | paddle.nansum(w, 1) | paddle.nanmean(w, 0, True) | paddle.outer(v, w) | paddle.inner(w, x[:2]) | paddle.inner(w[:2], w)
paddle.tensordot(w, paddle.t(w), 1) | paddle.tensordot(im, im, [[1, 2], [2, 3]]) | paddle.tensordot(w, w, [0]) | paddle.cdist(w, w[:2]) | paddle.cdist(w, w[1:], 1.0)
paddle.renorm(w, 2.0, 0, 1.5) | paddle.renorm(im, 1.0, 1, 2.0) | paddle.baddbmm(im[0], im[0], im[0], 0.5, 2.0) | paddle.msort(w) | paddle.kthvalue(w, 2)[0] | paddle.kthvalue(w, 3, 0, True)[1]
paddle.permute(im, [0, 3, 1, 2]) | paddle.matrix_transpose(im) | paddle.ravel(w) | paddle.unflatten(im, 1, [2, -1]) | paddle.unflatten(w, -1, [2, 2])
paddle.atleast_2d(v) | paddle.atleast_3d(v) | paddle.atleast_3d(w) | paddle.atleast_1d(w, v)[1] | paddle.hstack([w, w]) | paddle.hstack([v, v]) | paddle.vstack([v, w]) | paddle.row_stack([v, v])
paddle.dstack([w, w]) | paddle.column_stack([w[:, 0], w]) | paddle.block_diag([w, v, w[:2, :2]]) | paddle.cartesian_prod([v, v[:2]]) | paddle.broadcast_tensors([w[:, :1], v])[0]
paddle.select_scatter(w, v, 0, 1) | paddle.select_scatter(w, v[:3], 1, -1) | paddle.diff(w) | paddle.diff(w, 2, 1) | paddle.diff(w, 1, 0, w[:1], w[1:])
paddle.diff(b) | paddle.trapezoid(w) | paddle.trapezoid(w, dx=0.5, axis=0) | paddle.trapezoid(w, v) | paddle.trapezoid(w, x, axis=0) | paddle.vander(v) | paddle.vander(v, 3, True)
paddle.take(w, k) | paddle.take(w, k - 3) | paddle.take(w, k * 9, 'wrap') | paddle.take(w, k * 9, 'clip') | paddle.sigmoid(w)
paddle.pdist(w) | paddle.pdist(w, 1.0) | paddle.reduce_as(im, im[:, :1]) | paddle.reduce_as(im, v) | paddle.reduce_as(w, w) | paddle.cumulative_trapezoid(w) | paddle.cumulative_trapezoid(w, v, axis=1)
paddle.cumulative_trapezoid(w, dx=0.5, axis=0) | paddle.combinations(v) | paddle.combinations(v, 3, True)
paddle.slice_scatter(w, w[:2, 1:3] * 2, [0, 1], [0, 1], [2, 3], [1, 1]) | paddle.slice_scatter(w, w[:, :2] * 2, [1], [0], [4], [2]) | paddle.diagonal_scatter(w, v[:3]) | paddle.diagonal_scatter(w, v[:2], -1)
paddle.diagonal_scatter(im, im[:, :, :3, 0] * 2, 1, 3, 1) | paddle.baddbmm_(im[0], im[0], im[0]) | paddle.copysign_(w, x) | paddle.cumprod_(w, 0) | paddle.index_fill_(w, k[:, 0], 1, 0.5) | paddle.renorm_(w, 2.0, 0, 1.5)
F.tanh_(w) | F.leaky_relu_(w, 0.2) | F.hardtanh_(w) | F.thresholded_relu_(w)
"""

MORE_SLOPES = """
paddle.lerp(w, w * x, 0.25) | paddle.logaddexp(w, x * w) | paddle.hypot(w, x) | paddle.logit(F.sigmoid(w), 0.2) | paddle.fmax(w, x * w) | paddle.fmin(w, v) * x | paddle.nan_to_num(w) * x | paddle.sinc(w)
paddle.amax(paddle.concat([w, w]), 0) | paddle.amin(w) | paddle.nanmean(w * w, 0) | paddle.outer(w, w) | paddle.inner(w, w) | paddle.tensordot(w, w, [0]) ** 2
paddle.cdist(w, w[:2] * 2) | paddle.renorm(w, 2.0, 0, 1.5) * x | paddle.kthvalue(w, 2)[0] * v[:3] | paddle.unflatten(w * w, 1, [2, 2]) | paddle.block_diag([w, w]) ** 2
paddle.select_scatter(w, w[0] * 2, 0, 1) * x | paddle.diff(w, 2) ** 2 | paddle.trapezoid(w * w, v) | paddle.vander(w[0], 4) | paddle.take(w, k * 9, 'wrap') ** 2 | paddle.heaviside(w - w, w) * x
paddle.pdist(w * w) | paddle.cumulative_trapezoid(w * w, v) | paddle.combinations(w[0] * w[0]) | paddle.diagonal_scatter(w * 2, v[:3]) * x[:3]
paddle.slice_scatter(w * 2, w[:2, 1:3] * 3, [0, 1], [0, 1], [2, 3], [1, 1]) * x[:3]
"""

PADDLE = (
    listed(TENSORS)
    + listed(PLACES)
    + listed(FUNCTIONAL)
    + listed(WINDOWS)
    + listed(MORE)
    + [
        "paddle.static.gradients(%s, w)[0]" % one
        for one in listed(SLOPES) + listed(PLACES_SLOPES) + listed(MORE_SLOPES)
    ]
)


# Paddle has ops of their own for these.
OTHER_OPS = """
L.arange(0, 4) | L.bmm(im[0], im[0]) | L.stanh(w) | L.dice_loss(L.softmax(w), k) | L.npair_loss(w, w * 2, k[:, 0].astype('float32'))
L.brelu(w, -0.5, 0.5) | L.soft_relu(w, 1.5) | L.thresholded_relu(w, 0.5) | L.thresholded_relu(w) | L.hard_shrink(w) | L.softshrink(w, 0.25)
L.tanh_shrink(w) | L.selu(w) | L.selu(w, 1.5, 0.5) | L.maxout(im, 2) | L.log_softmax(w) | L.log_softmax(w, 0) | L.l2_normalize(w, 1)
L.l2_normalize(w, 0) | L.label_smooth(w) | L.label_smooth(w, w[:1], 0.2) | L.rank_loss(w[:, :1], w[:, 1:2], w[:, 2:3])
L.margin_rank_loss(w[:, :1], w[:, 1:2], w[:, 2:3]) | L.cos_sim(w, w * 2) | L.smooth_l1(w, w * 2) | L.smooth_l1(w, w * 2, sigma=0.5)
L.fsp_matrix(im, im)
"""

POINTWISE = """
L.acos(w / 4) | L.asin(w / 4) | L.atan(w) | L.erf(w) | L.log1p(x) | L.mish(w) | L.mish(w, 1) | L.prelu(w, 'all') | L.prelu(im - 4, 'channel')
L.prelu(im - 4, 'element') | L.prelu(w, 'channel', 'shares') | L.maxout(im, 2, axis=-1) | L.kldiv_loss(w, x) | L.kldiv_loss(w, x, 'none') | L.kldiv_loss(w, x, 'batchmean')
L.smooth_l1(w, x, w, x, 0.7) | L.bpr_loss(w, k) | L.teacher_student_sigmoid_loss(w[:, :1], x[:, 1:2] - 1)
L.sigmoid_focal_loss(w, L.cast(k, 'int32'), L.fill_constant([1], 'int32', 2)) | L.label_smooth(w, w[:1], 0.3)
"""
POINTWISE_2X = """
paddle.acos(w / 4) | paddle.asin(w / 4) | paddle.atan(w) | paddle.erf(w) | paddle.log1p(x) | paddle.asinh(w) | paddle.acosh(x + 1) | paddle.atanh(w / 4)
paddle.expm1(w) | paddle.trunc(w * 3) | paddle.frac(w) | paddle.rad2deg(w) | paddle.deg2rad(w) | paddle.sinh(w) | paddle.cosh(w) | paddle.tan(w)
paddle.log2(x) | paddle.log10(x) | paddle.stanh(w, 0.5, 2.0) | F.celu(w) | F.celu(w, 0.5) | F.mish(w) | F.silu(w) | F.glu(w) | F.glu(w, 1)
F.rrelu(w, 0.2, 0.6, False) | F.hardtanh(w, -0.5, 0.5) | F.maxout(im, 4, -1) | F.prelu(im - 4, v, 'NHWC') | F.nll_loss(im, paddle.ones([1, 4, 4], 'int64'), v, 2, 'none')
F.kl_div(w, x, 'none') | F.binary_cross_entropy(F.sigmoid(w), F.sigmoid(x), x, 'none')
"""
MOVES = """
L.eye(2, 3) | L.eye(2, batch_shape=[2]) | L.linspace(0, 1, 5, 'float32') | L.range(1, 9, 2, 'int64') | L.diag(v) | L.tril(w, 1) | L.triu(w)
L.expand_as(w[:1], w) | L.expand_as(w[:, :2], w) | L.multiplex([w, w * 2], L.cast(k % 2, 'int32')) | L.shard_index(k, 4, 2, 1)
L.scatter_nd(k, w, [5, 4]) | L.scatter_nd_add(w, k, w) | L.pixel_shuffle(im, 2) | L.shuffle_channel(im, 2) | L.pad_constant_like(w, w[:2, 1:], 0.5)
L.temporal_shift(L.expand(im, [4, 1, 1, 1]) * 1.5, 2) | L.crop(w, [2, 3], [1, 0]) | L.crop(w, x[:2]) | L.crop_tensor(w, [2, -1], [1, 1])
L.crop_tensor(w, [L.fill_constant([1], 'int32', 2), 2], [0, 1]) | L.space_to_depth(im, 2) | L.unfold(im, [2, 3], 2, [1, 0, 0, 1], 1)
L.unfold(im, 3, dilations=[1, 2], paddings=1) | L.range(0.3, 2, 0.4, 'float32') | L.range(L.fill_constant([1], 'int32', 3), 9, 2, 'int32')
L.linspace(L.fill_constant([1], 'float64', 3), 1.5, 4, 'float64') | L.diag(np.array([1.5, 2.5], 'float32'))
paddle.fluid.contrib.layers.partial_sum([w, w * 2], 1, 2) | L.trace(im, 1, 2, 3)
L.flip(w, [0, -1]) | L.roll(w, 1, 0) | L.roll(w, [1, -2], [0, 1]) | L.diag_embed(w, -1) | L.meshgrid([v, v])[1] | L.index_select(w, L.squeeze(k, [1]), 1) | L.index_sample(w, k)
L.allclose(w, x) | L.roll(im, 5) | paddle.fluid.contrib.layers.partial_concat([w, w * 2], -2)
"""

FLUID = (
    listed(OPERATORS) + listed(FLUID_LAYERS) + listed(OTHER_OPS) + listed(POINTWISE) + listed(MOVES)
)
COUNTS_AND_MATRICES = """
paddle.histogram(w, 4) | paddle.histogram(i, 5, 2, 7) | paddle.histogram(w, 3, -1.0, 1.0) | paddle.cumprod(w, 1) | paddle.cumprod(w)
paddle.atan2(w, w - 1) | paddle.atan2(x - 1, w) | paddle.atan2(w * 0, w) | paddle.atan2(w, w * 0)
paddle.linalg.matrix_norm(w) | paddle.linalg.matrix_norm(w, 1) | paddle.linalg.matrix_norm(im, float('inf'), [1, 2]) | paddle.linalg.vector_norm(w, 3)
paddle.linalg.vecdot(w, x) | paddle.linalg.matrix_power(w[:, :3], 3) | paddle.linalg.matrix_power(w[:, :3] + 3 * paddle.eye(3), -2)
paddle.linalg.multi_dot([w, paddle.t(w), w]) | paddle.linalg.matrix_transpose(im) | paddle.linalg.cov(w) | paddle.linalg.cov(w, False, False)
paddle.linalg.corrcoef(w) | paddle.linalg.solve(w[:, :3] + 3 * paddle.eye(3), w) | paddle.linalg.solve(w[:, :3] + 3 * paddle.eye(3), v[:3]) | paddle.linalg.inv(w[:, :3] + 3 * paddle.eye(3))
paddle.linalg.triangular_solve(w[:, :3] + 3 * paddle.eye(3), x) | paddle.linalg.triangular_solve(w[:, :3], x, False, True, True)
paddle.linalg.cholesky_solve(w, paddle.tril(w[:, :3]) + 3 * paddle.eye(3)) | paddle.linalg.cond(w[:, :3] + 3 * paddle.eye(3), 'fro')
"""
GAMMA_AND_BITS = """
paddle.lgamma(w) | paddle.lgamma(x * 9 - 5) | paddle.digamma(w) | paddle.digamma(x * 9 - 5) | paddle.static.gradients([paddle.lgamma(w) * v], [w])[0]
paddle.static.gradients([paddle.digamma(w) * v], [w])[0] | i.bitwise_and(paddle.full([4], 6, 'int64')) | paddle.bitwise_or(i, -i) | paddle.bitwise_xor(i, i[0])
paddle.bitwise_not(i) | paddle.bitwise_invert(b) | paddle.bitwise_and(b, b[:1]) | paddle.bitwise_left_shift(i, i) | paddle.bitwise_right_shift(-i, i - i + 1)
"""
# Of these the sign does not tell: that of a vector is the library's choice.
FACTORS = """
paddle.linalg.det(w[:, :3]) | paddle.linalg.det(im) | paddle.static.gradients([paddle.linalg.det(w[:, :3]) * 2], [w])[0]
paddle.linalg.slogdet(w[:, :3]) | paddle.static.gradients([paddle.linalg.slogdet(w[:, 1:])], [w])[0]
paddle.linalg.svd(w)[1] | paddle.linalg.svdvals(w) | paddle.abs(paddle.linalg.svd(w)[0]) | paddle.abs(paddle.linalg.svd(w, True)[2])
paddle.static.gradients([paddle.abs(paddle.linalg.svd(w)[0]) * v[:3]], [w])[0] | paddle.static.gradients([paddle.abs(paddle.linalg.svd(w)[2]) * v], [w])[0]
paddle.static.gradients([paddle.abs(paddle.linalg.svd(paddle.t(w))[0])], [w])[0] | paddle.static.gradients([paddle.linalg.svdvals(w)], [w])[0]
paddle.linalg.qr(w)[0] | paddle.linalg.qr(paddle.t(w))[1] | paddle.linalg.qr(w, 'r') | paddle.linalg.qr(paddle.t(w), 'complete')[0]
paddle.static.gradients([paddle.linalg.qr(w)[1] * v], [w])[0] | paddle.static.gradients([paddle.linalg.qr(paddle.t(w))[0] * v[:3]], [w])[0]
paddle.linalg.eigh(w[:, :3])[0] | paddle.abs(paddle.linalg.eigh(w[:, :3], 'U')[1]) | paddle.linalg.eigvalsh(w[:, :3])
paddle.static.gradients([paddle.linalg.eigvalsh(paddle.matmul(w, paddle.t(w))) * v[:3]], [w])[0]
paddle.static.gradients([paddle.abs(paddle.linalg.eigh(paddle.matmul(w, paddle.t(w)))[1]) * v[:3]], [w])[0]
paddle.linalg.pinv(w) | paddle.linalg.pinv(paddle.matmul(w, paddle.t(w)), 0.1, True) | paddle.static.gradients([paddle.linalg.pinv(w)], [w])[0]
paddle.linalg.matrix_rank(w) | paddle.linalg.matrix_rank(w, 1.5) | paddle.linalg.matrix_rank(paddle.matmul(w, paddle.t(w)), hermitian=True)
paddle.linalg.matrix_rank(w, atol=0.1, rtol=0.9) | paddle.linalg.matrix_rank(im)
paddle.einsum('ij,kj->ik', w, x) | paddle.einsum('bcij,bcjk->bik', im, im) | paddle.einsum('...ij,j', im, v) | paddle.einsum('i,j->ji', v, v)
paddle.einsum('ij->', w) | paddle.einsum('bcij,ij,j->cb', im, im[0, 0], v) | paddle.static.gradients([paddle.einsum('ij,kj->ik', w, w)], [w])[0]
w[k[:, 0]] | w[paddle.reshape(k, [3, 1])] | paddle.static.gradients([w[k[:, 0] * 0] * w], [w])[0]
paddle.static.gradients([paddle.gather(w, k[:, 0] * 0) * w], [w])[0] | paddle.static.gradients([paddle.gather(w, k, axis=1)], [w])[0]
F.scaled_dot_product_attention(im, im, im) | F.scaled_dot_product_attention(im, im, im, is_causal=True)
F.scaled_dot_product_attention(im, im, im, paddle.reshape(w[:1] * 2, [1, 1, 1, 4])) | F.scaled_dot_product_attention(im, im, im, im > 0)
F.sequence_mask(k[:, 0], 6, 'float32') | F.zeropad2d(im, [1, 0, 2, 1]) | F.triplet_margin_with_distance_loss(x, y, x * y, margin=0.25)
paddle.linalg.matrix_norm(w, 2) | paddle.linalg.matrix_norm(im[0], 'nuc', [0, 2]) | paddle.linalg.cond(w[:, :3]) | paddle.linalg.cond(w, -2) | paddle.linalg.cond(w[:, :3], 'nuc')
"""
# Element types of 2.x, which a program asks for by ``paddle.enable_static()``.
PROMOTED = """
i / 2 | i / 2.5 | i / i[::-1] | 2 / i | i + 2.5 | 2.5 - i | i * 0.5 | i ** 1.5 | i // 2 | i // -2 | -1 * i // 2 | i // 2.5 | 7 // i | i % 2.5 | 2.5 % i
i == 2.5 | i > 2.5 | i <= 2.5 | b == 2 | b < 2.5 | b + 2 | b * 2.5 | b - True | b / 2 | w // 2 | x // y | w // -0.5 | w + w.astype('float64')
w.astype('float64') / w | w < w.astype('float64') | i.astype('uint8') - 1 | i.astype('uint8') / 2 | i.astype('float16') * w | i * paddle.full([], 0.5)
b & (x > 1) | b | (x > 1) | b ^ (x > 1) | ~b | i & i[0] | i | i[0] | i ^ i[0] | ~i | i << 1 | i >> 1 | 2 & i | abs(w) | +w
paddle.add(w, w.astype('float64')) | paddle.maximum(w.astype('float64'), x) | paddle.less_than(w, w.astype('float64')) | paddle.pow(w * w, x.astype('float64'))
paddle.divide(i, i[0]) | paddle.floor_divide(w, x) | paddle.floor_divide(-i, i[0]) | paddle.floor_divide(i, 1.5) | paddle.pow(i, 2) | paddle.where(b, w, w.astype('float64'))
paddle.fmax(w, w.astype('float64')) | paddle.hypot(w, w.astype('float64')) | paddle.logaddexp(w, w.astype('float64')) | paddle.outer(w, v.astype('float64'))
paddle.exp(i) | paddle.sqrt(i) | paddle.rsqrt(i) | paddle.log(i) | paddle.sin(i) | paddle.cos(i) | paddle.tanh(i) | paddle.sigmoid(i) | paddle.erf(i) | paddle.reciprocal(i)
paddle.stanh(i) | paddle.floor(i) | paddle.ceil(i) | paddle.round(i) | paddle.prod(i.astype('int32'), 0) | paddle.logsumexp(i, 1) | paddle.amax(i, 0)
paddle.median(paddle.reshape(i, [3, 4])) | paddle.median(i, 1) | paddle.median(w, 1, mode='min')[0] | paddle.median(w, 0, True, 'min')[1] | paddle.median(paddle.log(w), 0)
paddle.logical_and(b, b[0]) | paddle.logical_or(b, b[:, :1]) | paddle.logical_xor(x > 1, b[0]) | paddle.topk(w, 2)[0] | paddle.topk(w, 2)[1]
"""
PROMOTED_SLOPES = """
paddle.topk(w, 2)[0] * x[:, :2] | w.topk(1)[0] ** 2 | w[[0, 2]] * w[[0, 0]] | w[:, [0, 2, 0]] ** 2 | w[[0, 1], [1, 1]] ** 2 | w[1, [0, 0, 3]] ** 2
"""
PICKED = """
w[[0, 2]] | w[[True, False, True]] | w[:, [0, 2, 0]] | w[:, k[:, 0]] | w[k[:, 0], 1] | w[1, k[:, 0]] | w[k[:, 0], k[:, 0]] | w[[0, 1], [1, 3]]
im[:, [0, 1], :] | im[0, 1, [0, 2]] | im[..., [0, 2]] | im[:, 0:2, [0, 2], 1:3] | w[:, k] | w[[[0, 1], [1, 2]]] | w[np.array([2, 0])]
"""
NAMES_OF_3X = """
paddle.index_fill(w, k[:, 0], 1, 0.5) | paddle.vecdot(w, x) | paddle.signbit(w) | paddle.quantile(w, 0.3)
paddle.quantile(w, [0.25, 0.5], 1) | paddle.quantile(w, 0.5, 0, True) | paddle.quantile(w, 1) | paddle.quantile(im, 0.35, [1, 3]) | paddle.quantile(im, [0.2], [1, 3], True)
paddle.quantile(w, 0.4, 1, interpolation='lower') | paddle.quantile(w, 0.4, 1, interpolation='higher') | paddle.quantile(w, 0.4, 1, interpolation='midpoint')
paddle.quantile(w, 0.4, 1, interpolation='nearest') | F.swiglu(w) | F.swiglu(w, w * w) | F.logsigmoid(w) | F.group_norm(im, 2) | F.group_norm(im, 2, 1e-3, v, v)
F.fold(F.unfold(im, 2, 2), [4, 4], 2, 2) | F.fold(F.unfold(im, 3, 1, 1), [4, 4], 3, 1, 1) | F.fold(F.unfold(im, [2, 3], [2, 1]), [4, 4], [2, 3], [2, 1])
F.fold(F.unfold(im, 2, 1, 0, 2), 4, 2, dilations=2) | F.fold(F.unfold(im, 3, 2), [4, 4], 3, 2) | F.fold(F.unfold(im, 2, 1, [1, 0]), [4, 4], 2, 1, [1, 0])
w.float() | w.double() | w.int() | w.long() | w.bool() | w.half() | paddle.nn.SiLU()(w) | paddle.nn.ZeroPad1D([1, 2])(im[0]) | paddle.nn.ZeroPad3D(1)(paddle.unsqueeze(im, 0))
paddle.nn.Fold([4, 4], 2, strides=2)(F.unfold(im, 2, 2))
"""
NAMES_OF_3X_SLOPES = """
paddle.index_fill(w, k[:2, 0], 0, 0.5) * x | paddle.vecdot(w, w * x) | paddle.quantile(w, 0.3, 1) ** 2 | F.swiglu(w) | F.swiglu(w * w, w)
F.fold(F.unfold(paddle.reshape(w, [1, 1, 3, 4]), 2), [3, 4], 2) ** 2
"""
RUNS = """
paddle.cummax(w, 1)[0] | paddle.cummax(w, 1)[1] | paddle.cummax(w)[0] | paddle.cummax(w, 0, 'int32')[1] | paddle.cummin(w, -1)[0] | paddle.cummin(w, 0)[1]
paddle.cummax(i, 1)[0] | paddle.cummax(i, 1)[1] | paddle.cummin(paddle.log(w), 1)[0] | paddle.cummax(paddle.log(w), 1)[1] | paddle.logcumsumexp(w, 1) | paddle.logcumsumexp(w)
paddle.logcumsumexp(w * 40, 0) | paddle.bincount(k[:, 0]) | paddle.bincount(i[0], minlength=12) | paddle.bincount(i[0], w[0]) | paddle.bincount(k[:, 0].astype('int32'))
paddle.unique_consecutive(i[0] // 3) | paddle.unique_consecutive(i // 3, True, True)[1] | paddle.unique_consecutive(i // 3, True, True)[2]
paddle.unique_consecutive(paddle.concat([w[:1], w[:1], w[1:]]), True, True, 0)[0] | paddle.unique_consecutive(paddle.concat([w[:1], w[:1], w[1:]]), True, True, 0, 'int32')[1]
paddle.nanmedian(paddle.log(w)) | paddle.nanmedian(paddle.log(w), 1) | paddle.nanmedian(paddle.log(w), 0, True) | paddle.nanmedian(w, [0, 1], True) | paddle.nanmedian(paddle.log(w), 1, mode='min')[0]
paddle.nanmedian(paddle.log(w), 1, True, 'min')[1] | paddle.nanmedian(im, [1, 3]) | paddle.nanquantile(paddle.log(w), 0.3) | paddle.nanquantile(paddle.log(w), [0.25, 0.5], 1)
paddle.nanquantile(paddle.log(w), 0.4, 1, True) | paddle.nanquantile(w, 0.4, 1, interpolation='nearest') | paddle.nanquantile(paddle.log(w), 0.4, 0, interpolation='higher')
paddle.nanquantile(paddle.log(w), 0.4, 1, interpolation='midpoint') | paddle.copysign(x, w) | paddle.copysign(w, -2.0)
paddle.masked_scatter(w, b, x) | paddle.masked_scatter(w, b[:, :1], x) | paddle.swapdims(im, 1, 3) | paddle.asarray([1, 2]) | paddle.as_tensor([1.5]) | paddle.nn.functional.softmax(w)
F.pad(im[0], [1, 2], 'reflect', data_format='NCL') | F.pad(im[0], [2, 1], 'circular', data_format='NLC') | F.pad(im, [1, 2, 3, 0], 'circular') | F.pad(im, [1, 0, 2, 1], 'circular', data_format='NHWC')
F.pad(paddle.unsqueeze(im, 0), [1, 2, 0, 3, 2, 1], 'replicate', data_format='NCDHW') | F.pad(paddle.unsqueeze(im, 0), [1, 2, 0, 3, 0, 0], 'reflect', data_format='NDHWC')
F.pad(paddle.unsqueeze(im, 0), [1, 2, 0, 3, 1, 0], 'circular', data_format='NCDHW')
paddle.nn.ReflectionPad1D([1, 2])(im[0]) | paddle.nn.ReflectionPad2D([1, 2, 0, 1])(im) | paddle.nn.ReplicationPad1D(1)(im[0]) | paddle.nn.ReplicationPad2D([0, 1, 2, 3])(im)
paddle.nn.CircularPad2D(1)(im) | paddle.nn.CircularPad3D(1)(paddle.unsqueeze(im, 0)) | paddle.nn.ReplicationPad3D([0, 1, 2, 3, 1, 1])(paddle.unsqueeze(im, 0)) | paddle.nn.ConstantPad2D([1, 2, 0, 1], 1.5)(im)
"""
RUNS_SLOPES = """
paddle.cummax(w, 1)[0] * x | paddle.cummin(w)[0] ** 2 | paddle.logcumsumexp(w, 1) * x | paddle.copysign(w, x) | paddle.masked_scatter(w * w, b, w)
F.pad(paddle.unsqueeze(w, 0), [1, 2], 'circular', data_format='NCL') ** 2 | F.pad(paddle.unsqueeze(w, 0), [1, 2], 'replicate', data_format='NCL') ** 2
"""
_BOXES = "paddle.concat([x[:, :2], x[:, :2] + x[:, 2:]], 1)"
_THREE = "paddle.full([1], 3, 'int32')"
REGIONS = [
    one.replace("BOXES", _BOXES).replace("THREE", _THREE).replace("V.", "paddle.vision.ops.")
    for one in listed("""
V.roi_align(im, BOXES, THREE, 2) | V.roi_align(im, BOXES, THREE, (2, 3), 0.5, 2, False) | V.roi_pool(im, BOXES, THREE, (2, 1)) | V.psroi_pool(paddle.concat([im, im], 1), BOXES, THREE, 2)
V.RoIAlign(2, 0.5)(im, BOXES, THREE) | V.RoIPool((1, 2))(im, BOXES, THREE) | V.PSRoIPool(1)(im, BOXES, THREE) | V.nms(BOXES, 0.1) | V.nms(BOXES, 0.1, x[:, 0])
V.nms(BOXES, 0.1, x[:, 0], k[:, 0] % 2, [0, 1]) | V.nms(paddle.concat([w[:, :2], w[:, :2] + 1], 1), 0.1, v[:3], k[:, 0] % 2, [0, 1], 2) | V.box_coder(BOXES, [0.1, 0.1, 0.2, 0.2], x) | V.box_coder(BOXES, x, paddle.unsqueeze(w, 1), 'decode_center_size', axis=1)
V.deform_conv2d(im, paddle.tile(im, [1, 2, 1, 1])[:, :, :3, :3] - 4, paddle.tile(im[:, :, :2, :2], [2, 1, 1, 1])) | V.deform_conv2d(im, paddle.tile(im, [1, 2, 1, 1])[:, :, :3, :3] - 4, paddle.tile(im[:, :2, :2, :2], [4, 1, 1, 1]), v, groups=2, mask=im[:, :, :3, :3])
V.yolo_box(paddle.tile(im, [1, 2, 1, 1])[:, :6] * 0.1, paddle.full([1, 2], 40, 'int32'), [10, 13], 1, 0.5, 8)[0] | V.yolo_loss(paddle.tile(im, [1, 3, 1, 1]) * 0.1, paddle.abs(paddle.unsqueeze(w, 0)) * 0.2, paddle.zeros([1, 3], 'int32'), [10, 13, 16, 30], [0, 1], 1, 0.5, 8)
V.prior_box(im, im, [2.0], [3.0], [1.0, 2.0], flip=True, min_max_aspect_ratios_order=True)[0] | V.distribute_fpn_proposals(BOXES * 100, 2, 4, 3, 150, rois_num=THREE)[0][1] | V.distribute_fpn_proposals(BOXES * 100, 2, 4, 3, 150, True, THREE)[1]
V.distribute_fpn_proposals(BOXES * 100, 2, 4, 3, 150, rois_num=THREE)[2][2] | V.generate_proposals(im, paddle.tile(im, [1, 4, 1, 1]) * 0.1, paddle.full([1, 2], 60.0), paddle.tile(im, [4, 1, 1, 1]) * 8, paddle.ones([4, 4, 4, 4]), post_nms_top_n=6, nms_thresh=0.6, return_rois_num=True)[0]
V.matrix_nms(paddle.unsqueeze(BOXES, 0), paddle.reshape(x, [1, 4, 3]), 0.2, 0.1, -1, -1)[0] | V.matrix_nms(paddle.unsqueeze(BOXES, 0), paddle.reshape(x, [1, 4, 3]), 0.2, 0.1, 9, 5, True, 1.5, -1, False)[0] | V.matrix_nms(paddle.unsqueeze(BOXES, 0), paddle.reshape(x, [1, 4, 3]), 0.2, 0.1, -1, -1)[1] | V.matrix_nms(paddle.unsqueeze(BOXES, 0), paddle.reshape(x, [1, 4, 3]), 0.2, 0.1, -1, 4, return_index=True)[2]
V.generate_proposals(im, paddle.tile(im, [1, 4, 1, 1]) * 0.1, paddle.full([1, 2], 60.0), paddle.tile(im, [4, 1, 1, 1]) * 8, paddle.ones([4, 4, 4, 4]), min_size=4.0, nms_thresh=0.5, pixel_offset=True, return_rois_num=True)[2]
""")
]
DISTRIBUTIONS = [
    one.replace("D.", "paddle.distribution.")
    for one in listed("""
D.Normal(w, x).log_prob(y) | D.Normal(w, x).probs(y) | D.Normal(w, x[:1]).entropy() | D.Normal(0.5, 2.0).log_prob(w) | D.Normal(w, x).kl_divergence(D.Normal(y, x * 2)) | D.Normal(v, x).mean | D.Normal(v, x).variance
D.LogNormal(w, x).log_prob(y) | D.LogNormal(w, x).entropy() | D.LogNormal(w, x * 0.5).mean | D.LogNormal(w, x * 0.5).variance | D.kl_divergence(D.LogNormal(w, x), D.LogNormal(y, x * 2))
D.Laplace(w, x).log_prob(y) | D.Laplace(w, x).entropy() | D.Laplace(w, x).cdf(y) | D.Laplace(w, x).icdf(x / 4) | D.Laplace(w, x).stddev | D.kl_divergence(D.Laplace(w, x), D.Laplace(y, x * 2))
D.Gumbel(w, x).log_prob(y) | D.Gumbel(w, x).entropy() | D.Gumbel(w, x).cdf(y) | D.Gumbel(w, x).mean | D.Gumbel(w, x).variance | D.Cauchy(w, x).log_prob(y) | D.Cauchy(w, x).entropy() | D.Cauchy(w, x).cdf(y)
D.Cauchy(w, x).kl_divergence(D.Cauchy(y, x)) | D.Uniform(w - 3, x).log_prob(y) | D.Uniform(w - 3, x).probs(w - 9) | D.Uniform(w - 3, x).entropy() | D.Exponential(x).log_prob(y) | D.Exponential(x).entropy()
D.Exponential(x).cdf(y) | D.Exponential(x).icdf(y / 4) | D.Exponential(x).mean | D.kl_divergence(D.Exponential(x), D.Exponential(y * 2)) | D.Bernoulli(x / 4).log_prob(b.astype('float32')) | D.Bernoulli(x / 4).entropy()
D.Bernoulli(x / 4).cdf(b.astype('float32')) | D.Bernoulli(x / 4).variance | D.kl_divergence(D.Bernoulli(x / 4), D.Bernoulli(y / 5)) | D.Geometric(paddle.abs(w) / 4).pmf(y) | D.Geometric(paddle.abs(w) / 4).cdf(y) | D.Geometric(paddle.abs(w) / 4).entropy()
D.Geometric(paddle.abs(w) / 4).mean | D.Geometric(paddle.abs(w) / 4).stddev | D.kl_divergence(D.Geometric(paddle.abs(w) / 4), D.Geometric(paddle.abs(w) / 5)) | D.Categorical(x).entropy() | D.Categorical(w).kl_divergence(D.Categorical(w * 2)) | D.Categorical(x * w).probs(k[:, 0])
D.Categorical(x).log_prob(k) | D.Categorical(x).probs(paddle.tile(k, [1, 2])) | D.Categorical(x[0]).probs(k[:, 0])
""")
]
_COV = "(paddle.matmul(w, w, transpose_x=True) + paddle.eye(4))"
DISTRIBUTIONS += [
    one.replace("D.", "paddle.distribution.")
    .replace("T.", "paddle.distribution.transform.")
    .replace("TRIL", "(paddle.tril(COV, -1) + paddle.eye(4))")
    .replace("COV", _COV)
    for one in listed("""
D.Gamma(x, y).log_prob(y) | D.Gamma(x, y).prob(x) | D.Gamma(x, y).entropy() | D.Gamma(x, y).mean | D.Gamma(x, y).variance | D.kl_divergence(D.Gamma(x.astype('float64'), y.astype('float64')), D.Gamma(y.astype('float64'), x.astype('float64') * 2)) | D.Gamma(0.5, 2.0).log_prob(x)
D.Chi2(x).log_prob(y) | D.Chi2(x).mean | D.Chi2(x).entropy() | D.kl_divergence(D.Chi2(x), D.Chi2(y)) | D.Beta(x.astype('float64'), y.astype('float64')).log_prob(y.astype('float64') / 4) | D.Beta(x, y).prob(y / 4) | D.Beta(x.astype('float64'), y.astype('float64')).entropy() | D.Beta(x, y).mean | D.Beta(x, y).variance
D.kl_divergence(D.Beta(x, y), D.Beta(y, x * 2)) | D.Beta(x.astype('float64'), y.astype('float64')[:1]).entropy() | D.Beta(0.5, 2.0).log_prob(x / 4) | D.Dirichlet(x).log_prob(F.softmax(w)) | D.Dirichlet(x).prob(F.softmax(w)) | D.Dirichlet(x).entropy()
D.Dirichlet(x).mean | D.Dirichlet(x).variance | D.kl_divergence(D.Dirichlet(x), D.Dirichlet(y)) | D.Dirichlet(x[0]).log_prob(F.softmax(w)) | D.Dirichlet(x[0]).entropy()
D.Binomial(paddle.full([4], 9, 'int64'), x / 4).log_prob(i) | D.Binomial(9, x[0] / 4).entropy() | D.Binomial(9, x / 4).mean | D.Binomial(9, x / 4).variance
D.kl_divergence(D.Binomial(9, x[0] / 4), D.Binomial(9, y[0] / 4)) | D.Binomial(9, 0.3).prob(i) | D.Poisson(x).log_prob(i) | D.Poisson(x).mean | D.Poisson(x[0]).entropy() | D.Poisson(x).prob(i) | D.Poisson(2.5).log_prob(i)
D.kl_divergence(D.Poisson(paddle.full([1], 2.5)), D.Poisson(paddle.full([1], 3.5))) | D.Multinomial(9, x).log_prob(i) | D.Multinomial(9, x[0]).log_prob(i) | D.Multinomial(9, x).mean | D.Multinomial(9, x).variance | D.Multinomial(9, x[0]).entropy() | D.Multinomial(9, x).prob(i)
D.ContinuousBernoulli(x / 4).log_prob(y / 4) | D.ContinuousBernoulli(x / 4).mean | D.ContinuousBernoulli(x.astype('float64') / 4).variance | D.ContinuousBernoulli(x / 4).entropy() | D.ContinuousBernoulli(x / 4).cdf(y / 4) | D.ContinuousBernoulli(x / 4).icdf(y / 4)
D.ContinuousBernoulli(x * 0.0001 + 0.4999).log_prob(y / 4) | D.ContinuousBernoulli(x * 0.0001 + 0.4999).mean | D.ContinuousBernoulli(x * 0.0001 + 0.4999).variance | D.ContinuousBernoulli(x * 0.0001 + 0.4999).entropy() | D.ContinuousBernoulli(x * 0.0001 + 0.4999).cdf(y / 4)
D.kl_divergence(D.ContinuousBernoulli(x / 4), D.ContinuousBernoulli(y / 4)) | D.ContinuousBernoulli(x / 4).prob(y / 4)
D.Independent(D.Normal(w, x), 1).log_prob(y) | D.Independent(D.Normal(w, x), 1).entropy() | D.Independent(D.Normal(w, x), 1).mean | D.Independent(D.Beta(x, y), 2).log_prob(y / 4) | D.Independent(D.Normal(w, x), 2).variance
D.MultivariateNormal(w, scale_tril=TRIL).log_prob(x) | D.MultivariateNormal(w, scale_tril=TRIL).entropy() | D.MultivariateNormal(v, scale_tril=TRIL).variance | D.MultivariateNormal(v, covariance_matrix=COV).log_prob(w) | D.MultivariateNormal(v, covariance_matrix=COV).entropy()
D.MultivariateNormal(v, precision_matrix=COV).log_prob(w) | D.MultivariateNormal(v, precision_matrix=COV).variance | D.MultivariateNormal(v, covariance_matrix=COV).mean | D.kl_divergence(D.MultivariateNormal(v, covariance_matrix=COV), D.MultivariateNormal(v * 2, precision_matrix=COV))
D.MultivariateNormal(w, covariance_matrix=paddle.stack([COV, COV * 2, COV * 3])).log_prob(x) | D.MultivariateNormal(w, covariance_matrix=paddle.stack([COV, COV * 2, COV * 3])).entropy() | D.MultivariateNormal(w, covariance_matrix=paddle.stack([COV, COV * 2, COV * 3])).variance
D.MultivariateNormal(v, covariance_matrix=COV).prob(w)
D.TransformedDistribution(D.Normal(w, x), [T.ExpTransform()]).log_prob(y) | D.TransformedDistribution(D.Normal(w, x), [T.AffineTransform(y, x), T.ExpTransform()]).log_prob(y) | T.ExpTransform()(D.Normal(w, x)).log_prob(y)
D.TransformedDistribution(D.Normal(w, x), [T.SigmoidTransform()]).log_prob(y / 4) | D.TransformedDistribution(D.Normal(w, x), [T.TanhTransform()]).log_prob(y / 4) | D.TransformedDistribution(D.Normal(w, x), [T.StickBreakingTransform()]).log_prob(F.softmax(paddle.concat([w, w[:, :1]], 1)))
D.TransformedDistribution(D.Normal(x, x), [T.PowerTransform(v[:1] * 0 + 2)]).log_prob(y) | D.TransformedDistribution(D.Normal(w[:2], x[:2]), [T.ReshapeTransform([4], [2, 2])]).log_prob(paddle.reshape(y[:2], [2, 2, 2]))
T.AbsTransform().forward(w) | T.AbsTransform().inverse(x)[0] | T.AbsTransform().inverse(x)[1] | T.AffineTransform(w, x).forward(y) | T.AffineTransform(w, x).inverse(y) | T.AffineTransform(w, x).forward_log_det_jacobian(y) | T.AffineTransform(w, x).inverse_log_det_jacobian(y)
T.ExpTransform().forward(w) | T.ExpTransform().inverse(x) | T.ExpTransform().forward_log_det_jacobian(w) | T.ExpTransform().inverse_log_det_jacobian(x) | T.PowerTransform(x).forward(y) | T.PowerTransform(x).inverse(y) | T.PowerTransform(x).forward_log_det_jacobian(y)
T.SigmoidTransform().forward(w) | T.SigmoidTransform().inverse(x / 4) | T.SigmoidTransform().forward_log_det_jacobian(w) | T.TanhTransform().forward(w) | T.TanhTransform().inverse(x / 4) | T.TanhTransform().forward_log_det_jacobian(w)
T.SoftmaxTransform().forward(w) | T.SoftmaxTransform().inverse(x) | T.StickBreakingTransform().forward(w) | T.StickBreakingTransform().inverse(F.softmax(w)) | T.StickBreakingTransform().forward_log_det_jacobian(w) | T.StickBreakingTransform().inverse_log_det_jacobian(F.softmax(w))
T.ChainTransform([T.AffineTransform(w, x), T.ExpTransform()]).forward(y) | T.ChainTransform([T.AffineTransform(w, x), T.ExpTransform()]).inverse(y) | T.ChainTransform([T.AffineTransform(w, x), T.ExpTransform()]).forward_log_det_jacobian(y)
T.ChainTransform([T.ExpTransform(), T.StickBreakingTransform()]).forward_log_det_jacobian(w) | T.IndependentTransform(T.ExpTransform(), 1).forward(w) | T.IndependentTransform(T.ExpTransform(), 1).forward_log_det_jacobian(w) | T.ReshapeTransform([4], [2, 2]).forward(w)
T.ReshapeTransform([2, 2], [4]).inverse(w) | T.ReshapeTransform([4], [2, 2]).forward_log_det_jacobian(w) | T.StackTransform([T.ExpTransform(), T.TanhTransform(), T.SigmoidTransform()], 0).forward(w)
T.StackTransform([T.ExpTransform(), T.TanhTransform(), T.SigmoidTransform()], 0).forward_log_det_jacobian(w) | paddle.static.gradients([D.Gamma(paddle.abs(w), x).log_prob(y)], [w])[0] | paddle.static.gradients([D.Dirichlet(paddle.abs(w)).entropy()], [w])[0]
""")
]

_SEGMENTS, _EDGES = "paddle.sort(k[:, 0] // 2 * 2)", "k[:, 0], k[:, 0] // 2"
_KINDS, _COMBINED = ("sum", "mean", "max", "min"), ("add", "sub", "mul", "div")
GRAPHS = [
    *("paddle.geometric.segment_%s(w, %s)" % (kind, _SEGMENTS) for kind in _KINDS),
    "paddle.incubate.segment_mean(i, %s)" % _SEGMENTS,
    "paddle.geometric.segment_max(i, %s)" % _SEGMENTS,
    *("paddle.geometric.send_u_recv(w, %s, '%s')" % (_EDGES, kind) for kind in _KINDS),
    "paddle.incubate.graph_send_recv(w, %s, 'max', out_size=2)" % _EDGES,
    "paddle.geometric.send_u_recv(w * 0 + 1, %s, 'max')" % _EDGES,
    *("paddle.geometric.send_ue_recv(w, w + 4, %s, '%s', 'mean')" % (_EDGES, op) for op in _COMBINED),
    "paddle.geometric.send_ue_recv(w, w[:, :1], %s, 'mul', 'min')" % _EDGES,
    "paddle.geometric.send_ue_recv(w, w[:, 0], %s, 'add', 'max')" % _EDGES,
    *("paddle.geometric.send_uv(w, w + 4, %s, '%s')" % (_EDGES, op) for op in _COMBINED),
    "paddle.incubate.softmax_mask_fuse(im, im[:, :1] * -1)",
    "paddle.incubate.identity_loss(x, 'none')",
]
WRITTEN = """
paddle.static.setitem(w, 1, x[0]) | paddle.static.setitem(w, (slice(None), slice(0, 3, 2)), x[:, :2]) | paddle.static.setitem(i, (Ellipsis, -1), 0)
paddle.static.setitem(w, k[:, 0] // 2 * 2, x[:1]) | paddle.static.setitem(w, w > 0, -1.0) | paddle.static.setitem(w, w[:, 0] > 0, 9.0)
paddle.static.setitem(w, (slice(None, None, -1), 1), np.array([1, 2, 3], 'float32')) | paddle.static.setitem(b, (0, 0), True)
paddle.mod(-i, i[:, :1]) | paddle.mod(i, -i[0]) | -i % 3 | -i % i[0] | paddle.mod(w, -x) | paddle.take(w, -k, 'wrap')
paddle.eye(k[0], 4) | paddle.eye(k[0, 0], dtype='int64') | paddle.full([k[0, 0], 2], 3.0)
"""
_WRITTEN_SLOPES = """
paddle.static.setitem(w, 1, x[0]) * w | paddle.static.setitem(x, (slice(None), slice(0, 2)), w[:, :2]) * v
paddle.static.setitem(w, k[:, 0] // 2 * 2, x[:1]) | paddle.static.setitem(w * v, w > 0, w[w > 0] * 2)
"""

PADDLE += listed(PROMOTED) + listed(PICKED) + listed(NAMES_OF_3X) + listed(RUNS)
PADDLE += REGIONS + DISTRIBUTIONS
PADDLE += ["paddle.static.gradients(%s, w)[0]" % one for one in listed(RUNS_SLOPES)]
PADDLE += [
    "paddle.static.gradients(%s, w)[0]" % one for one in listed(NAMES_OF_3X_SLOPES)
]
PADDLE += ["paddle.static.gradients(%s, w)[0]" % one for one in listed(PROMOTED_SLOPES)]
PADDLE += listed(POINTWISE_2X) + listed(COUNTS_AND_MATRICES)
PADDLE += listed(GAMMA_AND_BITS) + listed(FACTORS) + GRAPHS + listed(WRITTEN)
PADDLE += [
    "paddle.static.gradients([%s], w)[0]" % one
    for one in [*("%s * v[:4]" % one for one in GRAPHS if "(w" in one), *listed(_WRITTEN_SLOPES)]
]


def arrays():
    """Return what is fed; no two elements are alike, and x and y agree in some."""
    rng = np.random.RandomState(7)
    x = np.round(rng.uniform(0.25, 3.0, (3, 4)), 3).astype("float32")
    y = np.where(rng.rand(3, 4) < 0.5, x, x[::-1]).astype("float32")
    w = np.round(rng.uniform(-2.0, 2.0, (3, 4)), 3).astype("float32")
    i = rng.randint(1, 9, (3, 4)).astype("int64")
    return {
        "x": x,
        "y": y,
        "w": w,
        "v": w[1] * 2,
        "i": i,
        "k": np.array([[2], [0], [1]], "int64"),
        "b": w > 0,
        "im": np.arange(64, dtype="float32").reshape(1, 4, 4, 4) / 8,
    }


def build(expressions, block, names):
    """Append each expression's ops to ``block``; return (expression, op types, variable)."""
    names["w"].stop_gradient = False
    rows = []
    for expression in expressions:
        before = {id(op) for op in block.ops}
        value = eval(expression, dict(names))
        added = [getattr(op, "type", "") for op in block.ops if id(op) not in before]
        rows.append((expression, added, value))
    return rows
