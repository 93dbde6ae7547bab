"""What one child process runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A server that is run as a child process.

    Attributes:
        name: of the child, in messages and as the name of its log.
        argv: the command.
        address: "host:port" where it answers HTTP.
        path: what is asked to see whether it serves; any status below 500 says that it does.
        environment: variables beside those of this process.
    """

    name: str
    argv: tuple[str, ...]
    address: str
    path: str = "/health"
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The address as a URL."""
        return f"http://{self.address}"
