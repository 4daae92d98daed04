"""Two factors between a model's times and measured ones: one of its latency, one of its transfer time.

Shape letters: N samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["METHODS", "Fit", "fit_factors"]

Float = npt.NDArray[np.float64]

LATENCY_AND_TRANSFER, TRANSFER, LATENCY, BOTH_ALIKE = "latency and transfer", "transfer", "latency", "both alike"
METHODS = (LATENCY_AND_TRANSFER, TRANSFER, LATENCY, BOTH_ALIKE)

# Samples, and ratio of the largest to the smallest transfer per latency, from which on two factors can be told apart.
_SAMPLES, _SPREAD = 3, 4.0
# Residuals beyond this many standard deviations count less: nearly least absolute residuals, since delays only add.
_TUNING = 0.5
_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class Fit:
    """Factors: time = latency_factor * latency + transfer_factor * transfer.

    Attributes:
        method: Which of them were fitted: ``latency and transfer``; ``transfer``, with the model's own latency;
            ``latency``, where nothing is transferred; ``both alike``, one factor for the whole.
        latency_factor: Factor of the latency.
        transfer_factor: Factor of the transfer time; its inverse is the share of the bandwidth that is achieved.
        residual_median: Median of abs(time / measured - 1).
        residual_p90: 90th percentile of that.
    """

    method: str
    latency_factor: float
    transfer_factor: float
    residual_median: float
    residual_p90: float


def fit_factors(measured: Float, latency: Float, transfer: Float) -> Fit:
    """Fit a model's times to measured ones.

    Ratios count, so that short communications matter as much as long ones and twice as long is as wrong as half as
    long; outliers count less (iterated least squares with Huber's weights: Holland and Welsch, "Robust regression using
    iteratively reweighted least-squares", Commun. Stat. A6, 1977). Factors are never negative. Samples that can't tell
    latency from transfer, because there are too few or because they are too equal, get one factor.

    Args:
        measured: float64 [N], ns, above 0.
        latency: float64 [N], ns: the model's.
        transfer: float64 [N], ns: the model's.

    Example:
        >>> size = np.array([1.0, 10.0, 100.0, 1000.0])
        >>> fit = fit_factors(30 + 2 * size, np.full(4, 10.0), size)
        >>> fit.method, round(fit.latency_factor, 6), round(fit.transfer_factor, 6)
        ('latency and transfer', 3.0, 2.0)
    """
    if not transfer.any():
        return _with_residuals(LATENCY, _one_factor(measured, latency), 1.0, measured, latency, transfer)
    if _can_tell(latency, transfer):
        factors = _two_factors(measured, latency, transfer)
        return _with_residuals(LATENCY_AND_TRANSFER, *factors, measured, latency, transfer)
    if np.median(latency / measured) <= 0.5:
        factor = _one_factor(measured - latency, transfer)
        return _with_residuals(TRANSFER, 1.0, factor, measured, latency, transfer)
    factor = _one_factor(measured, latency + transfer)
    return _with_residuals(BOTH_ALIKE, factor, factor, measured, latency, transfer)


def _can_tell(latency: Float, transfer: Float) -> bool:
    if len(latency) < _SAMPLES or not (latency > 0).all():
        return False
    ratio = np.sort(transfer / latency)
    return bool(ratio[-1] >= _SPREAD * max(ratio[0], ratio[-1] / 1e12))


def _one_factor(measured: Float, model: Float) -> float:
    """Return the median ratio, 1 if there is none."""
    known = model > 0
    return max(float(np.median(measured[known] / model[known])), 0.0) if known.any() else 1.0


def _two_factors(measured: Float, latency: Float, transfer: Float) -> tuple[float, float]:
    """Return factors a, b of 0 or more such that a * latency + b * transfer is near the measured times."""
    model, weight = measured, np.ones(len(measured))
    a = b = 0.0
    for _ in range(_ROUNDS):
        before = (a, b)
        # (model - measured) / sqrt(model * measured) is 2 sinh(r / 2), with r the logarithm of their ratio.
        unit = np.sqrt(model * measured)
        a, b = _least_squares(latency / unit, transfer / unit, measured / unit, weight)
        model = np.maximum(a * latency + b * transfer, 1e-3 * measured)
        residual = np.abs(np.log(model / measured))
        scale = max(1.4826 * float(np.median(residual)), 1e-9)
        weight = np.minimum(1.0, _TUNING * scale / np.maximum(residual, 1e-12))
        if np.allclose(before, (a, b), rtol=1e-9, atol=0.0):
            break
    return a, b


def _least_squares(one: Float, other: Float, target: Float, weight: Float) -> tuple[float, float]:
    """Return the factors of least squares; where one would be negative, it is 0."""
    aa, ab, bb = (float(np.sum(weight * x * y)) for x, y in ((one, one), (one, other), (other, other)))
    at, bt = float(np.sum(weight * one * target)), float(np.sum(weight * other * target))
    determinant = aa * bb - ab * ab
    if determinant > 1e-12 * aa * bb:
        a, b = (at * bb - bt * ab) / determinant, (bt * aa - at * ab) / determinant
        if a >= 0 and b >= 0:
            return a, b
    only = (at / aa, 0.0), (0.0, bt / bb)
    return min(only, key=lambda pair: float(np.sum(weight * (pair[0] * one + pair[1] * other - target) ** 2)))


def _with_residuals(method: str, a: float, b: float, measured: Float, latency: Float, transfer: Float) -> Fit:
    residual = np.abs((a * latency + b * transfer) / measured - 1)
    return Fit(method, a, b, float(np.median(residual)), float(np.quantile(residual, 0.9)))
