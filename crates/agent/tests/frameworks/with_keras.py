"""Keras' ModelCheckpoint and BackupAndRestore: epoch-1.keras …, epoch-1.weights.h5 …, and a SavedModel for each epoch."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy
import tensorflow as tf
import keras


def model():
    small = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(8)])
    small.compile("adam", "mse")
    return small


if __name__ == "__main__":
    command, kind, directory, *rest = sys.argv[1:]
    one = numpy.ones((8, 8), "float32")
    if command == "save":
        small = model()
        name = {"keras": "epoch-{epoch}.keras", "h5": "epoch-{epoch}.weights.h5"}.get(kind)
        if name:
            saver = keras.callbacks.ModelCheckpoint(os.path.join(directory, name), save_weights_only=kind == "h5")
            small.fit(one, one, epochs=3, callbacks=[saver], verbose=0)
        elif kind == "backup":
            backup = keras.callbacks.BackupAndRestore(os.path.join(directory, "backup"), delete_checkpoint=False)
            small.fit(one, one, epochs=3, callbacks=[backup], verbose=0)
        else:
            for epoch in range(1, 4):
                small.fit(one, one, epochs=1, verbose=0)
                tf.saved_model.save(small, os.path.join(directory, f"epoch-{epoch}"))
    else:
        path = rest[0]
        if kind == "keras":
            assert keras.models.load_model(path).optimizer.iterations.numpy() == int(rest[1])
        elif kind == "h5":
            model().load_weights(path)
        else:
            assert tf.saved_model.load(path) is not None
    print(tf.__version__, keras.__version__)
