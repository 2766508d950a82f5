"""Words and their tags: GRUs that walk both ways, a chain of tags above them, and its best reading."""

import argparse

import numpy as np
import paddle
import paddle.fluid as fluid

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--places", type=int, default=1)
WORDS, TAGS, BATCH = 50, 5, 6


def sentences(seed, count):
    """A tag follows from the word, and from whether the word before had an even number."""

    def reader():
        rng = np.random.RandomState(seed)
        for _ in range(count):
            words = rng.randint(0, WORDS, rng.randint(1, 10))
            before = np.append([0], words[:-1])
            yield words.tolist(), ((words // 10 + before % 2) % TAGS).tolist()

    return reader


def lex_net(word, target, word_emb_dim=12, grnn_hidden_dim=8, bigru_num=2):
    def bigru_layer(feature):
        both = []
        for is_reverse in (False, True):
            pre_gru = fluid.layers.fc(
                input=feature,
                size=grnn_hidden_dim * 3,
                param_attr=fluid.ParamAttr(
                    regularizer=fluid.regularizer.L2DecayRegularizer(regularization_coeff=1e-4)
                ),
            )
            both.append(
                fluid.layers.dynamic_gru(input=pre_gru, size=grnn_hidden_dim, is_reverse=is_reverse)
            )
        return fluid.layers.concat(input=both, axis=1)

    feature = fluid.embedding(
        input=word, size=[WORDS, word_emb_dim], param_attr=fluid.ParamAttr(name="word_emb")
    )
    for _ in range(bigru_num):
        feature = bigru_layer(feature)
    emission = fluid.layers.fc(size=TAGS, input=feature)
    crf_cost = fluid.layers.linear_chain_crf(
        input=emission,
        label=target,
        param_attr=fluid.ParamAttr(name="crfw", learning_rate=2.0),
    )
    crf_decode = fluid.layers.crf_decoding(input=emission, param_attr=fluid.ParamAttr(name="crfw"))
    return fluid.layers.mean(x=crf_cost), crf_decode


def same_values(program):
    """Give parameters values that do not depend on the framework's generator."""
    scope = fluid.global_scope()
    for number, parameter in enumerate(sorted(program.all_parameters(), key=lambda p: p.name)):
        rng = np.random.RandomState(number)
        values = rng.uniform(-0.2, 0.2, parameter.shape).astype("float32")
        scope.find_var(parameter.name).get_tensor().set(values, fluid.CPUPlace())


def main(args):
    word = fluid.data(name="word", shape=[None], dtype="int64", lod_level=1)
    target = fluid.data(name="target", shape=[None, 1], dtype="int64", lod_level=1)
    avg_cost, crf_decode = lex_net(word, target)
    fluid.optimizer.Adam(learning_rate=0.02).minimize(avg_cost)
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    same_values(fluid.default_main_program())
    program = fluid.default_main_program()
    if args.places > 1:
        program = fluid.CompiledProgram(program).with_data_parallel(
            loss_name=avg_cost.name, places=[place] * args.places
        )
    for step, data in enumerate(paddle.batch(sentences(0, BATCH * args.steps), BATCH)()):
        words, tags = (np.concatenate([pair[k] for pair in data]) for k in (0, 1))
        lengths = [[len(pair[0]) for pair in data]]
        feed = {
            "word": fluid.create_lod_tensor(words.astype("int64"), lengths, place),
            "target": fluid.create_lod_tensor(tags.astype("int64")[:, None], lengths, place),
        }
        loss, path = exe.run(
            program, feed=feed, fetch_list=[avg_cost, crf_decode], return_numpy=False
        )
        right = np.mean(np.array(path).ravel() == tags)
        print("step %d loss %.6f accuracy %.3f" % (step, np.mean(np.array(loss)), right))


if __name__ == "__main__":
    main(parser.parse_args())
