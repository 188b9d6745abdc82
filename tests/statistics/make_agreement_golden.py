"""Make agreement_golden.json: kappa, alpha and tau of random ratings, by the packages that others use.

Run in an environment of its own, as lbx needs none of them:

    python -m venv golden && golden/bin/pip install krippendorff==0.9.0 scikit-learn==1.9.1 scipy==1.17.1
    golden/bin/python tests/statistics/make_agreement_golden.py
"""

from __future__ import annotations

import json
from pathlib import Path

import krippendorff
import numpy as np
from scipy.stats import kendalltau
from sklearn.metrics import cohen_kappa_score

LEVELS = ("nominal", "ordinal", "interval")
PLACE = Path(__file__).with_name("agreement_golden.json")


def rated(random: np.random.Generator) -> dict[str, object]:
    """Some raters' ratings of some things: half follow the thing, half are drawn; some are missing."""
    raters, things, best = random.integers(2, 7), random.integers(25, 60), random.integers(2, 11)
    truth = random.integers(1, best + 1, things)
    ratings = np.where(random.random((raters, things)) < 0.5, truth, random.integers(1, best + 1, (raters, things)))
    ratings = ratings.astype(float)
    ratings[random.random(ratings.shape) < random.choice([0.0, 0.1, 0.5])] = np.nan
    alphas = {level: float(krippendorff.alpha(ratings, level_of_measurement=level)) for level in LEVELS}
    both = ~np.isnan(ratings[:2]).any(axis=0)
    first, second = ratings[:2, both].astype(int)
    labels = list(range(1, int(best) + 1))
    kappas = {
        name: float(cohen_kappa_score(first, second, labels=labels, weights=weights))
        for name, weights in (("plain", None), ("quadratic", "quadratic"))
    }
    return {
        "ratings": [[None if np.isnan(one) else int(one) for one in row] for row in ratings],
        "alpha": alphas,
        "kappa": kappas,
        "tau": float(kendalltau(first, second).statistic),
    }


if __name__ == "__main__":
    random = np.random.default_rng(17)
    made = [one for one in (rated(random) for _ in range(60)) if "NaN" not in json.dumps(one)]
    PLACE.write_text("[\n" + ",\n".join(json.dumps(one) for one in made) + "\n]\n")
