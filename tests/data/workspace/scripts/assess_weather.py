"""The rule of svc-weather-watch: which limit decides whether a ship sails."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Forecast:
    """Forecast at the roughest point of the passage."""

    wave: float
    wind: float
    gust: float


@dataclass(frozen=True)
class Verdict:
    """Go, caution or no-go, and the sentence that names the decisive limit."""

    word: str
    decisive: str


CAUTION_SHARE = 0.85


def assess(forecast: Forecast, limits: dict[str, float]) -> Verdict:
    """Compare with the limits of config/weather-limits.yaml; within 15 % below a limit is caution."""
    name, share = max(
        ((key, getattr(forecast, key) / limits[key]) for key in ("wave", "wind", "gust")), key=lambda pair: pair[1]
    )
    word = "no-go" if share > 1 else "caution" if share > CAUTION_SHARE else "go"
    return Verdict(word, f"{name} {getattr(forecast, name):.1f} against a limit of {limits[name]:.1f}")


def stale(minutes_since_reading: float) -> bool:
    """A buoy that has been silent for more than twenty minutes is not believed."""
    return minutes_since_reading > 20
