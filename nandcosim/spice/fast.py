"""What a fast model of a circuit is: many samples at once, checked against ngspice."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["FastModel", "FastSamples"]


@dataclass(frozen=True)
class FastSamples:
    """Samples of a fast model, all arrays of shape (samples,).

    Attributes
    ----------
    responses : dict of str to ndarray
    valid : ndarray of bool
        Inside the range that the model was validated in; ngspice is to run the others.
    """

    responses: dict[str, np.ndarray]
    valid: np.ndarray


class FastModel(ABC):
    """A circuit at fixed parameters, without ngspice in each sample."""

    @abstractmethod
    def sample_many(self, knobs: Mapping[str, np.ndarray]) -> FastSamples:
        """Evaluate samples.

        Parameters
        ----------
        knobs : Mapping of str to ndarray
            Every knob of the circuit, shape (samples, size).
        """

    @abstractmethod
    def agrees(
        self,
        knobs: Mapping[str, np.ndarray],
        fast: Mapping[str, float],
        full: Mapping[str, float],
    ) -> bool:
        """Whether a sample of the model is within its tolerance of ngspice's.

        Parameters
        ----------
        knobs : Mapping of str to ndarray
            Of the sample, shape (size,).
        fast, full : Mapping of str to float
            Responses of the model and of ngspice, those that the sweep wants.
        """
