"""Small synthetic files in the formats of the public data sets, and the readers that are tried on them.

Runs under Python 3.7 with Paddle 1.8.5 (``generate_datasets.py``) and here. Nothing in them is real data.
"""

import gzip
import hashlib
import io
import os
import struct
import tarfile
import zipfile

import numpy as np

SENTENCES = [
    "the cat sat on the mat",
    "a dog chased the cat",
    "on the mat the dog sat , and sat !",
    "the the the",
]


def _put(home, folder, name, data):
    path = os.path.join(home, folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def _tar(members):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def _zip(members):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in members:
            archive.writestr(name, data)
    return packed.getvalue()


def _text(lines):
    return "".join(line + "\n" for line in lines).encode()


def _python2_batch(pixels, labels, key):
    """Return the pickle that Python 2 writes of {"data": pixels, key: labels}: its strings are bytes."""

    def string(text):
        return b"U" + struct.pack("B", len(text)) + text

    size = pixels.tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x02(cnumpy\nndarray\nq\x03K\x00\x85q\x04U\x01bq\x05tq\x06Rq\x07"
        + b"(K\x01M"
        + struct.pack("<H", len(pixels))
        + b"M"
        + struct.pack("<H", pixels.shape[1])
        + b"\x86q\x08cnumpy\ndtype\nq\x09(U\x02u1q\x0aK\x00K\x01tq\x0bRq\x0c(K\x03U\x01|q\x0dNNN"
        + b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x0eb\x89T"
        + struct.pack("<i", len(size))
        + size
        + b"q\x0ftq\x10b"
    )
    numbers = b"]q\x11(" + b"".join(b"K" + struct.pack("B", n) for n in labels) + b"e"
    return b"\x80\x02}q\x01(" + string(b"data") + array + string(key) + numbers + b"u."


def _housing(home, draws):
    rows = draws.uniform(0, 50, (10, 14))
    lines = [" " + "  ".join("%.4f" % value for value in row) for row in rows]
    _put(home, "uci_housing", "housing.data", _text(lines))


def _mnist(home, draws):
    for name in ("train", "t10k"):
        pixels = draws.randint(0, 256, (100, 3, 2)).astype("uint8")
        labels = draws.randint(0, 10, 100).astype("uint8")
        image = struct.pack(">IIII", 2051, 100, 3, 2) + pixels.tobytes()
        _put(home, "mnist", name + "-images-idx3-ubyte.gz", gzip.compress(image))
        label = struct.pack(">II", 2049, 100) + labels.tobytes()
        _put(home, "mnist", name + "-labels-idx1-ubyte.gz", gzip.compress(label))


def _cifar(home, draws):
    def batch(key):
        return _python2_batch(
            draws.randint(0, 256, (3, 12)).astype("uint8"), draws.randint(0, 10, 3), key
        )

    ten = [
        ("cifar-10-batches-py/" + name, batch(b"labels"))
        for name in ("data_batch_1", "data_batch_2", "test_batch")
    ]
    _put(
        home,
        "cifar",
        "cifar-10-python.tar.gz",
        _tar([("cifar-10-batches-py/readme.html", b"x"), *ten]),
    )
    hundred = [("cifar-100-python/" + name, batch(b"fine_labels")) for name in ("test", "train")]
    _put(home, "cifar", "cifar-100-python.tar.gz", _tar(hundred))


def _imdb(home, draws):
    members = []
    for part in ("test", "train"):
        for kind in ("neg", "pos"):
            for number in range(2):
                words = " ".join(
                    draws.choice(
                        ["Good,", "good", "film!", "a", "a!", "bad", "it's", "\xe9t\xe9"], 100
                    )
                )
                members.append(("aclImdb/%s/%s/%d_7.txt" % (part, kind, number), words.encode()))
    _put(home, "imdb", "imdb%2FaclImdb_v1.tar.gz", _tar(members))


def _imikolov(home, draws):
    members = [
        ("./simple-examples/data/ptb.train.txt", _text(SENTENCES + ["<unk> sat", ""])),
        ("./simple-examples/data/ptb.valid.txt", _text(SENTENCES[:2])),
    ]
    _put(home, "imikolov", "imikolov%2Fsimple-examples.tgz", _tar(members))


def _movielens(home, draws):
    films = [
        "1::Toy Story (1995)::Animation|Comedy",
        "2::Caf\xe9 (a story) (1999)::Drama",
        "7::Heat (1995)::Comedy",
    ]
    users = ["1::F::1::10::48067", "5::M::56::16::70072"]
    ratings = [
        "%d::%d::%d::9780" % (user, film, 1 + film % 5)
        for user in (1, 5)
        for film in (1, 2, 7)
        for _ in range(7)
    ]
    members = [
        ("ml-1m/%s.dat" % name, ("\n".join(lines) + "\n").encode("latin1"))
        for name, lines in (("movies", films), ("users", users), ("ratings", ratings))
    ]
    _put(home, "movielens", "movielens%2Fml-1m.zip", _zip(members))


def _wmt(home, draws):
    words = ["<s>", "<e>", "<unk>", "the", "cat", "sat", "on"]
    pairs = [english + "\t" + " ".join(reversed(english.split())) for english in SENTENCES]
    pairs += ["no tab", "the " * 81 + "\tlong"]
    members = [
        ("wmt14/train/train", _text(pairs)),
        ("wmt14/test/test", _text(pairs[:2])),
        ("wmt14/gen/gen", _text(pairs[1:3])),
    ]
    members += [
        ("wmt14/src.dict", _text(words)),
        ("wmt14/trg.dict", _text(words[:3] + ["mat", "the", "cat"])),
    ]
    _put(home, "wmt14", "wmt14.tgz", _tar(members))
    members = [
        ("wmt16/train", _text(pairs)),
        ("wmt16/test", _text(pairs[:1])),
        ("wmt16/val", _text(pairs[1:2])),
    ]
    _put(home, "wmt16", "wmt16.tar.gz", _tar(members))


def _conll(home, draws):
    words = "A\ncat\nsat\ndown\nhere\n\nIt\nruns\n\nIt\nruns\nfalls\n\n"
    roles = "-  (A0*\n- *)\nsit  (V*)\n- (AM-LOC*)\n- *\n\n- (A0*)\nrun (V*)\n\n- (A0*) (A1*\nrun (V*) *)\nfall * (V*)\n\n"
    names = ("words/test.wsj.words.gz", "props/test.wsj.props.gz")
    members = [
        ("conll05st-release/test.wsj/" + name, gzip.compress(text.encode()))
        for name, text in zip(names, (words, roles))
    ]
    _put(home, "conll05st", "conll05st-tests.tar.gz", _tar(members))
    _put(
        home,
        "conll05st",
        "conll05st%2FwordDict.txt",
        _text(["<unk>", "cat", "sat", "down", "It", "bos", "eos"]),
    )
    _put(home, "conll05st", "conll05st%2FverbDict.txt", _text(["run", "sit"]))
    _put(
        home,
        "conll05st",
        "conll05st%2FtargetDict.txt",
        _text(["B-A0", "I-A0", "B-V", "I-V", "B-AM-LOC", "I-AM-LOC", "B-A1", "I-A1", "O"]),
    )
    _put(home, "conll05st", "conll05st%2Femb", bytes(16) + np.ones((7, 32), "float32").tobytes())


def _sentiment(home, draws):
    words = np.array(["good", "bad", "film", "it's", "a", "!", ",", "plot", "(", "1999", ")"])
    members = [
        (
            "movie_reviews/%s/cv%03d_%d.txt" % (kind, number, 9 - number),
            "\n".join(" ".join(draws.choice(words, 8)) for _ in range(25)).encode(),
        )
        for kind in ("neg", "pos")
        for number in range(801)
        if number < 3 or number > 797
    ]
    _put(home, "corpora", "movie_reviews.zip", _zip([("movie_reviews/README", b"x"), *members]))


def _mq2007(home, draws):
    lines = []
    for query, scores in ((10, (0, 2, 1, 1)), (11, (0, 0)), (12, (1, 0))):
        for score in scores:
            features = " ".join(
                "%d:%.6f" % (i + 1, value) for i, value in enumerate(draws.uniform(0, 1, 46))
            )
            lines.append("%d qid:%d %s #docid = GX%d inc = 1" % (score, query, features, query))
    for name, some in (("train", lines), ("test", lines[-2:])):
        _put(home, "MQ2007", "MQ2007/MQ2007/Fold1/%s.txt" % name, _text(some))
    _put(home, "MQ2007", "7b6dbbe2-842c-11e4-a536-bcaec51b9163_MQ2007.rar", b"Rar!")


def _flowers(home, draws):
    from scipy.io import savemat

    members = [("jpg/image_%05d.jpg" % number, draws.bytes(20 + number)) for number in range(1, 7)]
    _put(home, "flowers", "102flowers.tgz", _tar(members))
    for name, values in (
        ("imagelabels.mat", {"labels": np.array([[77, 3, 102, 1, 5, 6]], "uint8")}),
        (
            "setid.mat",
            {
                "tstid": np.array([[4, 1, 6]], "uint16"),
                "trnid": np.array([[2]], "uint16"),
                "valid": np.array([[3, 5]], "uint16"),
            },
        ),
    ):
        written = io.BytesIO()
        savemat(written, values)
        _put(home, "flowers", name, written.getvalue())


def write(home):
    """Write all files under a cache folder."""
    files = (
        _housing,
        _mnist,
        _cifar,
        _imdb,
        _imikolov,
        _movielens,
        _wmt,
        _conll,
        _sentiment,
        _mq2007,
        _flowers,
    )
    for number, make in enumerate(files):
        make(home, np.random.RandomState(number))


def told(value):
    """Return a sample or a dictionary as JSON that tells every value and its type."""
    if isinstance(value, np.ndarray):
        digest = hashlib.sha1(np.ascontiguousarray(value).tobytes()).hexdigest()[:12]
        return [str(value.dtype), list(value.shape), digest]
    if isinstance(value, bytes):
        return "bytes " + value.decode("latin1")
    if isinstance(value, dict):
        return sorted(([told(key), told(item)] for key, item in value.items()), key=repr)
    if isinstance(value, (list, tuple)):
        return [type(value).__name__] + [told(item) for item in value]
    if isinstance(value, (bool, int, float, str)):
        return value
    return [type(value).__name__, str(value)]


def named(sample, place, numbers):
    """Return a sample whose numbers at one place are put in words: the order of some dictionaries is chance."""
    words = {number: word for word, number in numbers.items()}
    sample = list(sample)
    sample[place] = [words[number] for number in sample[place]]
    return sample


def outcomes(d):
    """Return what each reader of ``paddle.dataset`` (here ``d``) yields, by a name for it."""
    words, few = d.imdb.word_dict(), d.imikolov.build_dict(1)
    titles, kinds = d.movielens.get_movie_title_dict(), d.movielens.movie_categories()
    roles = d.conll05.get_dict()[2]

    def film(sample):
        return named(named(sample, 5, kinds), 6, titles)

    def kept(sample):
        return sample

    readers = {
        "uci_housing.train": d.uci_housing.train(),
        "uci_housing.test": d.uci_housing.test(),
        "uci_housing.predict_reader": lambda: [d.uci_housing.predict_reader()],
        "mnist.train": d.mnist.train(),
        "mnist.test": d.mnist.test(),
        "cifar.train10": d.cifar.train10(),
        "cifar.test10": d.cifar.test10(),
        "cifar.train100": d.cifar.train100(),
        "cifar.test100": d.cifar.test100(),
        "imdb.word_dict": lambda: [words],
        "imdb.train": d.imdb.train(words),
        "imdb.test": d.imdb.test(words),
        "imikolov.build_dict": lambda: [few],
        "imikolov.train": d.imikolov.train(few, 4),
        "imikolov.test": d.imikolov.test(few, 2),
        "imikolov.sequences": d.imikolov.train(few, 0, d.imikolov.DataType.SEQ),
        "imikolov.short": d.imikolov.train(few, 5, d.imikolov.DataType.SEQ),
        "movielens.train": lambda: map(film, d.movielens.train()()),
        "movielens.test": lambda: map(film, d.movielens.test(rand_seed=3, test_ratio=0.4)()),
        "movielens.words": lambda: [sorted(titles), sorted(kinds)],
        "movielens.most": lambda: [
            [d.movielens.max_user_id(), d.movielens.max_movie_id(), d.movielens.max_job_id()]
        ],
        "movielens.films": lambda: [
            str(info) for _, info in sorted(d.movielens.movie_info().items())
        ],
        "movielens.users": lambda: [
            str(info) for _, info in sorted(d.movielens.user_info().items())
        ],
        "wmt14.train": d.wmt14.train(6),
        "wmt14.test": d.wmt14.test(30),
        "wmt14.gen": d.wmt14.gen(30),
        "wmt14.get_dict": lambda: [d.wmt14.get_dict(5), d.wmt14.get_dict(30, reverse=False)],
        "wmt16.train": d.wmt16.train(8, 6),
        "wmt16.test": d.wmt16.test(6, 30, "de"),
        "wmt16.validation": d.wmt16.validation(30, 30),
        "wmt16.get_dict": lambda: [d.wmt16.get_dict("en", 8), d.wmt16.get_dict("de", 6, True)],
        "conll05.get_dict": lambda: [list(d.conll05.get_dict()[:2]), sorted(roles)],
        "conll05.test": lambda: [named(sample, 8, roles) for sample in d.conll05.test()()],
        "conll05.embedding": lambda: [os.path.basename(d.conll05.get_embedding())],
        "sentiment.get_word_dict": lambda: [d.sentiment.get_word_dict()],
        "sentiment.train": d.sentiment.train,
        "mq2007.pairwise": d.mq2007.train,
        "mq2007.listwise": lambda: d.mq2007.train(format="listwise"),
        "mq2007.pointwise": lambda: d.mq2007.test(format="pointwise"),
        "mq2007.plain_txt": lambda: d.mq2007.train(format="plain_txt"),
        "flowers.train": d.flowers.train(kept, use_xmap=False),
        "flowers.test": d.flowers.test(kept, use_xmap=False),
        "flowers.valid": d.flowers.valid(kept, use_xmap=False),
        "image.simple_transform": lambda: _transformed(d.image),
    }
    return {name: [told(sample) for sample in reader()] for name, reader in readers.items()}


def _transformed(image):
    """Yield images cut, mirrored and turned, from one that has the right size already (OpenCV is not needed)."""
    image.resize_short = lambda im, size: im
    picture = np.arange(9 * 7 * 3, dtype="uint8").reshape(9, 7, 3)
    np.random.seed(0)
    for is_train in (True, True, True, False):
        yield image.simple_transform(picture, 7, 5, is_train, mean=[1.5, 2, 3])
        yield image.simple_transform(picture[:, :, 0], 7, 5, is_train, is_color=False)
    yield image.left_right_flip(picture)
    yield image.center_crop(picture, 4)


def summary(samples):
    """Return the number of samples, the first few, and a sum over all of them."""
    return [len(samples), hashlib.sha1(repr(samples).encode()).hexdigest()[:12], samples[:2]]
