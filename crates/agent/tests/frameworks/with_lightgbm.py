"""LightGBM has no callback for it: programs call save_model, with a name of their own."""

import os
import sys

import lightgbm
import numpy


def train(directory, rounds, model=None):
    data = lightgbm.Dataset(numpy.arange(640.0).reshape(160, 4), numpy.arange(160.0), free_raw_data=False)

    def save(environment):
        number = environment.iteration + 1
        if number % 2 == 0:
            environment.model.save_model(os.path.join(directory, f"model_{number}.txt"))

    return lightgbm.train({"verbose": -1, "num_threads": 1}, data, rounds, init_model=model, callbacks=[save])


if __name__ == "__main__":
    command, directory, *rest = sys.argv[1:]
    if command == "save":
        train(directory, 6)
    else:
        path, step = rest[0], int(rest[1])
        assert lightgbm.Booster(model_file=path).num_trees() == step
    print(lightgbm.__version__)
