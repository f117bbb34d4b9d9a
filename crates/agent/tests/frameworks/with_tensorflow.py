"""tf.train.CheckpointManager: ckpt-1 to ckpt-3; a run that goes on saves one more, and keeps two."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf


def manager(directory, keep):
    step = tf.Variable(0, dtype=tf.int64)
    model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(8)])
    checkpoint = tf.train.Checkpoint(step=step, model=model)
    return checkpoint, tf.train.CheckpointManager(checkpoint, directory, max_to_keep=keep)


if __name__ == "__main__":
    command, directory, *rest = sys.argv[1:]
    if command == "save":
        checkpoint, saver = manager(directory, None)
        for _ in range(3):
            checkpoint.step.assign_add(1)
            saver.save()
    else:
        path, step = rest[0], int(rest[1])
        checkpoint, saver = manager(directory, 2)
        checkpoint.restore(path).assert_consumed()
        assert checkpoint.step.numpy() == step
        # Its own search for the newest must find one that is there, too.
        newest = tf.train.latest_checkpoint(directory)
        checkpoint.restore(newest).assert_consumed()
        assert checkpoint.step.numpy() == step, (newest, checkpoint.step.numpy())
        checkpoint.step.assign(step + 1)
        saver.save()
        assert checkpoint.restore(saver.latest_checkpoint)
    print(tf.__version__)
