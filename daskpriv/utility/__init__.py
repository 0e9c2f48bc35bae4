"""What a synthetic table is good for: models trained on it, tested on real rows that nobody trained on.

Whole encoded tables in, results out. Knows neither Dask nor files; scikit-learn and xgboost (`daskpriv[utility]`) are
imported where a model is fitted.
"""

from daskpriv.utility.practical import ROPE, SignTest, bayes_sign_test

__all__ = ["ROPE", "SignTest", "bayes_sign_test"]
