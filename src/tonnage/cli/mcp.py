"""``tonnage mcp``: the questions of the command as tools for agents."""

from __future__ import annotations


def mcp() -> None:
    """Offer size, simulate, memory, compare and catalog to an agent, over standard input and output (docs/agents.md)."""
    from tonnage.api.running.agents import serve_agents
    from tonnage.cli.progress import compile_if_needed

    compile_if_needed()
    serve_agents()
