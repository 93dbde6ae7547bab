"""The error that a client gets in place of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tonnage.serve.dialect import Dialect


class Refused(Exception):
    """A request that is answered with an error of the API.

    Attributes:
        status: of HTTP.
        kind: the error's ``type``, as vLLM names it.
        param: the field that is wrong; None where it is the whole body.
    """

    def __init__(self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str | None = None) -> None:
        """Keep the parts of the body that the client gets."""
        super().__init__(message)
        self.status, self.kind, self.param = status, kind, param

    def to_json(self, dialect: Dialect) -> dict[str, Any]:
        """The body, in the words of an engine."""
        return dialect.error(str(self), kind=self.kind, param=self.param, code=self.status)
