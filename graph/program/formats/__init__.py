"""Files that Paddle reads and writes, as bytes: programs, tensors and pickled state.

``program.py`` turns programs into messages and back, ``messages.py`` messages into bytes and back;
``tensors.py`` does values, ``state_reader.py`` and ``state_writer.py`` do pickles. Nothing here opens a file,
and nothing computes. Bytes are not trusted: :class:`~rowlock.strategies.errors.DamagedFile` names the byte at
which they are wrong.
"""
