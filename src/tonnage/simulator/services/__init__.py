"""Services of models that are not LLMs, simulated: dynamic batching as Triton has it, several models on a GPU, pipelines."""

from tonnage.simulator.services.run import ServiceRun, run_service

__all__ = ["ServiceRun", "run_service"]
