"""PromQL of the requests that a deployment works on."""

from __future__ import annotations

from tonnage.deploy.service import Service


def in_flight(service: Service) -> str:
    """Requests in flight over all instances.

    Where the engine has no gauges, they are the seconds that requests took, a second (Little's law), over two minutes.
    """
    signals, at = service.signals, f'deployment="{service.name}"'
    if signals.running:
        return f"sum({signals.running}{{{at}}}) + sum({signals.waiting}{{{at}}})"
    return f"sum(rate({signals.histograms['e2e'].name}_sum{{{at}}}[2m]))"
