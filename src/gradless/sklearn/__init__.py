"""Nets trained by aMC behind scikit-learn's protocol."""

from gradless.sklearn.estimators import MCClassifier, MCRegressor

__all__ = ["MCClassifier", "MCRegressor"]
