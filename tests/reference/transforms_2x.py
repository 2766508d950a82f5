"""Pixels that ``paddle.vision.transforms`` gives in Paddle 3.3.1 for images of Pillow.

Run with a Python that has paddlepaddle==3.3.1 to make transforms_2x.json:  python transforms_2x.py
{"version": Pillow's, "images": {call: [mode or dtype, shape, bytes as hex]}, "errors": {call: built-in error}}
A call is an expression over T (the module), rgb, gray and rgba (images), array (H x W x C, float32) and np.
"""

import os
import random
import sys

import numpy as np

CALLS = """
T.to_tensor(rgb)
T.to_tensor(gray, 'HWC')
T.to_tensor(rgba)
T.to_tensor(gray.convert('I'))
T.to_tensor(gray.convert('F'))
T.to_tensor(gray.convert('1'))
T.to_tensor(np.asarray(rgb))
T.to_tensor(array)
T.ToTensor()(np.asarray(gray))
T.resize(rgb, 5)
T.resize(rgb, 15, 'bicubic')
T.resize(rgb.rotate(90, expand=True), 6, 'nearest')
T.resize(gray, (7, 12), 'lanczos')
T.Resize([4, 9], 'hamming')(rgba)
T.Resize((4, 9), 'box')(rgb)
T.Resize(9)(rgb)
T.pad(rgb, 2)
T.pad(rgb, [1, 2], (9, 120, 250))
T.Pad((1, 2, 3, 0), 77)(gray)
T.Pad([2, 3], padding_mode='edge')(rgb)
T.Pad(3, padding_mode='reflect')(gray)
T.Pad((3, 2), padding_mode='symmetric')(rgba)
T.pad(gray.convert('P'), 1)
T.crop(rgb, 2, 3, 4, 5)
T.crop(rgb, -2, 8, 4, 9)
T.center_crop(rgb, 4)
T.CenterCrop((12, 4))(rgb)
T.hflip(rgb)
T.vflip(gray)
T.adjust_brightness(rgb, 0.4)
T.adjust_brightness(rgba, 1.7)
T.adjust_contrast(rgb, 0.3)
T.adjust_contrast(gray, 2.5)
functional.adjust_saturation(rgb, 0.2)
functional.adjust_saturation(rgb, 1.8)
T.adjust_hue(rgb, 0.3)
T.adjust_hue(rgb, -0.45)
T.adjust_hue(gray, 0.3)
T.affine(rgb, 25, (1, -2), 0.8, (10, 5))
T.affine(rgb, -40.0, [0, 0], 1.3, 12, 'bilinear')
T.affine(rgb, 90, [2, 1], 1.0, [0.0, 0.0], 'bicubic', 0, (2, 3))
T.rotate(rgb, 30)
T.rotate(rgb, -75.5, 'bilinear', True, None, 200)
T.rotate(rgb, 45, 'bicubic', False, [3, 4], [10, 20, 30])
T.perspective(rgb, [[0, 0], [10, 0], [10, 8], [0, 8]], [[1, 2], [9, 0], [10, 7], [2, 8]])
T.perspective(rgb, [[0, 0], [10, 0], [10, 8], [0, 8]], [[2, 1], [8, 1], [10, 8], [0, 6]], 'bilinear')
T.to_grayscale(rgb)
T.to_grayscale(gray, 3)
T.Grayscale(3)(rgba)
T.normalize(rgb, [120.0, 100.0, 90.0], [50.0, 60.0, 70.0], 'HWC')
T.normalize(array.transpose(2, 0, 1), [0.5, 0.4, 0.3], [0.5, 0.6, 0.7])
T.Normalize([127.5] * 3, [127.5] * 3, 'HWC', True)(rgb)
T.Normalize(127.5, 127.5)(T.Transpose()(rgb))
T.Transpose()(rgb)
T.Transpose((1, 0, 2))(gray)
T.erase(rgb, 2, 3, 4, 5, 100)
T.erase(rgb, 2, 3, 2, 2, np.array([[[1, 2, 3]]]))
T.erase(array, 2, 3, 2, 2, np.array([0.5]))
T.Compose([T.Resize(6), T.CenterCrop(5), T.ToTensor(), T.Normalize(0.5, 0.25)])(rgb)
T.Resize(5, keys=('image', 'image'))((rgb, gray, 3))[1]
T.RandomResizedCrop(6)(rgb)
T.RandomResizedCrop((5, 4), (0.3, 0.6), (1.5, 2.0), 'bicubic')(rgb)
T.RandomResizedCrop(4, (5.0, 6.0), (4.0, 5.0))(rgb)
T.RandomHorizontalFlip()(rgb)
T.RandomVerticalFlip(0.3)(rgb)
T.BrightnessTransform(0.6)(rgb)
T.ContrastTransform(0.6)(rgb)
T.SaturationTransform(1.6)(rgb)
T.SaturationTransform((0.2, 0.4))(rgb)
T.HueTransform(0.4)(rgb)
T.HueTransform((-0.3, 0.1))(rgb)
T.ColorJitter(0.4, 0.4, 0.4, 0.4)(rgb)
T.ColorJitter(hue=0.2)(rgb)
T.RandomCrop(5)(rgb)
T.RandomCrop((7, 6), 2, padding_mode='reflect')(rgb)
T.RandomCrop(14, None, True, (1, 2, 3))(rgb)
T.RandomAffine(40)(rgb)
T.RandomAffine([-90, 90], (0.2, 0.3), (0.5, 2.0), 20, 'bilinear')(rgb)
T.RandomAffine(0, None, None, [-10, 10, 5, 30], center=[1, 2])(rgb)
T.RandomRotation(60)(rgb)
T.RandomRotation((10, 20), 'bilinear', True, fill=5)(rgb)
T.RandomPerspective(0.7)(rgb)
T.RandomPerspective(1.0, 0.9, 'bilinear')(rgb)
T.RandomErasing()(rgb)
T.RandomErasing(1.0, (0.1, 0.2), (0.5, 2.0), [10, 20, 30])(rgb)
T.RandomErasing(1.0, value='random')(rgb)
T.RandomErasing(1.0, (1.0, 1.0))(rgb)
T.RandomErasing(0.9, value=0.25)(array)
""".strip().splitlines()

ERRORS = """
T.BaseTransform(keys=3)
T.BaseTransform(keys=('sound',))
T.BaseTransform()(rgb)
T.Resize('5')
T.resize(rgb, '5')
T.resize('rgb', 5)
T.resize(np.zeros(3), 5)
T.to_tensor(rgb, 'NCHW')
T.RandomResizedCrop(5, (0.5, 0.1))
T.RandomResizedCrop(5, ratio=(2.0, 1.0))
T.RandomHorizontalFlip(1.5)
T.RandomVerticalFlip(-0.1)
T.BrightnessTransform(-1)
T.ContrastTransform(-1)
T.SaturationTransform('1')
T.SaturationTransform((2, 1))
T.HueTransform((-0.7, 0.1))
T.adjust_hue(rgb, 0.6)
T.RandomCrop(99)(rgb)
T.Pad('2')
T.Pad((1, 2, 3))
T.Pad(1, padding_mode='wrap')
T.pad(rgb, '2')
T.pad(rgb, (1, 2, 3))
T.pad(rgb, 1, padding_mode='wrap')
T.RandomAffine(-1)
T.RandomAffine('1')
T.RandomAffine(1, (0.1,))
T.RandomAffine(1, (0.1, 1.1))
T.RandomAffine(1, scale=(0, 1))
T.RandomAffine(1, interpolation='box')
T.RandomAffine(1, center=3)
T.affine(rgb, '1', (0, 0), 1.0, 0)
T.affine(rgb, 1, 0, 1.0, 0)
T.affine(rgb, 1, (0, 0, 0), 1.0, 0)
T.affine(rgb, 1, (0, 0), 0.0, 0)
T.affine(rgb, 1, (0, 0), 1.0, (1, 2, 3))
T.RandomRotation(-1)
T.RandomRotation((1, 2, 3))
T.RandomPerspective(2)
T.RandomPerspective(1, 1.1)
T.RandomPerspective(1, 0.5, 'box')
T.to_grayscale(rgb, 2)
T.RandomErasing(2)
T.RandomErasing(1, 0.1)
T.RandomErasing(1, (0.3, 0.1))
T.RandomErasing(1, ratio=(2.0, 1.0))
T.RandomErasing(1, value='noise')
T.RandomErasing(1, value=(1, 2))(rgb)
""".strip().splitlines()


def names(module):
    """Return what calls are over."""
    from PIL import Image

    pixels = np.random.RandomState(7).randint(0, 256, (9, 11, 4)).astype(np.uint8)
    pixels[:5, :, :3] //= 3
    return {
        "T": module,
        "functional": sys.modules[module.__name__ + ".functional"],
        "np": np,
        "rgb": Image.fromarray(np.ascontiguousarray(pixels[..., :3])),
        "gray": Image.fromarray(np.ascontiguousarray(pixels[..., 0])),
        "rgba": Image.fromarray(pixels),
        "array": (pixels[..., :3] / 255).astype(np.float32),
    }


def pixels(image):
    """Return [mode or dtype, shape, bytes as hex] of an image, an array or a tensor."""
    values = np.ascontiguousarray(image)
    kind = image.mode if hasattr(image, "getbands") else values.dtype.name
    return [kind, list(values.shape), values.tobytes().hex()]


def result(module, call):
    """Seed, call three times, and return the last image."""
    random.seed(len(call))
    np.random.seed(len(call))
    scope = names(module)
    for _ in range(3 if "Random" in call or "Transform" in call or "Jitter" in call else 1):
        image = eval(call, scope)
    return pixels(image)


def refusal(module, call):
    """Return the names of the built-in errors that a call's error is."""
    try:
        eval(call, names(module))
    except Exception as error:
        return [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
    return None


def results(module):
    return {
        "images": {call: result(module, call) for call in CALLS},
        "errors": {call: (refusal(module, call) or [None])[0] for call in ERRORS},
    }


if __name__ == "__main__":
    import compact_json
    import paddle.vision.transforms
    import PIL

    path = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "transforms_2x.json")
    compact_json.write(path, {"version": PIL.__version__, **results(paddle.vision.transforms)}, 2)
