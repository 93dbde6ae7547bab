"""The regime of a prediction: what kind of load and model it is of, and how near measurements were to it."""

from __future__ import annotations

from dataclasses import dataclass, replace

REGIME_WORDS = {"static", "small batch", "large batch", "loaded", "current", "calibrated", "light", "middle", "heavy", "open"} | {
    "prompt",
    "output",
    "dense",
    "moe",
}
"""What the names of regimes in the table are made of (``Regime.names``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """What a prediction is of.

    Attributes:
        load: "small batch", "large batch", "light", "middle", "heavy" or "open".
        mix: "prompt" where it is the longer part by at least two, "output" otherwise.
        family: "dense" or "moe".
        known_gpu: whether rows of this GPU, in as many bits, were in the fit.
        few_of_vendor: whether its vendor's rows are of few GPUs: any but NVIDIA's.
        known_generation: whether anything is known of GPUs of its generation.
        known_model: whether rows of this model, or of one of the same sizes, were.
        newer_kinds: whether the model has indexers, compressed entries or states (``spec.layers``).
        known_engine: whether rows of this engine generation were; never where step times come from elsewhere.
        known_format: whether weights of this format were.
        known_family: whether experts or latent attention in this engine were.
        current: whether the engine is of a generation whose steps were measured one system at a time (``silicon_sample.csv``).
        calibrated: whether measurements of this deployment on this GPU shifted its terms.
        own_terms: whether these are terms that this deployment's own loads have fitted.
        own: by metric, root mean square and count of the calibration's own left-out errors; by_curve as it says.
    """

    load: str
    mix: str
    family: str
    known_gpu: bool = True
    few_of_vendor: bool = False
    known_generation: bool = True
    known_model: bool = True
    newer_kinds: bool = False
    known_engine: bool = True
    known_format: bool = True
    known_family: bool = True
    current: bool = False
    calibrated: bool = False
    own_terms: bool = False
    own: tuple[tuple[str, float, int], ...] = ()
    by_curve: bool = False

    @property
    def kind(self) -> str:
        """One of "static", for a single batch, and for requests that come and go "calibrated", "current" or "loaded"."""
        if self.load in ("small batch", "large batch"):
            return "static"
        return "calibrated" if self.calibrated else "current" if self.current else "loaded"

    @property
    def on_unknown_gpu(self) -> Regime:
        """The same on a GPU of which there is no row, of any engine."""
        return replace(self, known_gpu=False, known_engine=False)

    def names(self) -> tuple[str, ...]:
        """Names of the regime in the table, from wide to narrow."""
        load = f"{self.kind}, {self.load}" if self.kind in ("calibrated", "current") else self.load
        return (self.kind, load, f"{load}, {self.mix}", f"{load}, {self.mix}, {self.family}")
