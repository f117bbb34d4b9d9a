"""XGBoost's TrainingCheckPoint, every second round; a run that goes on trains two rounds more."""

import sys

import numpy
import xgboost


def train(directory, rounds, model=None):
    data = xgboost.DMatrix(numpy.arange(64.0).reshape(16, 4), numpy.arange(16.0))
    saver = xgboost.callback.TrainingCheckPoint(directory, name="model", interval=2)
    return xgboost.train({"nthread": 1}, data, rounds, xgb_model=model, callbacks=[saver])


if __name__ == "__main__":
    command, directory, *rest = sys.argv[1:]
    if command == "save":
        train(directory, 8)
    else:
        path, step = rest[0], int(rest[1])
        before = xgboost.Booster(model_file=path).num_boosted_rounds()
        assert before == step, (before, step)
        assert train(directory, 4, path).num_boosted_rounds() == step + 4
    print(xgboost.__version__)
