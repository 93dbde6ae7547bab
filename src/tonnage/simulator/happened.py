"""What happened in an engine between two instants, request by request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CANCELLED = 4
"""The status of a request that nobody wants any more, beside those of ``results.requests``; a record counts it as unfinished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """One entry for each time a request got tokens or ended without one, in the order in which the engine came to it.

    A step's entries stand together, those who entered the engine first in front.

    Attributes:
        ids: int64, the requests.
        at: int64, picoseconds: when the client has the tokens, which a slow front end may put later than the instant up to which
            the engine was advanced; when the engine rejected the request; when it was cancelled.
        tokens: int64, output tokens; several at once only with speculative decoding, none where it was rejected or cancelled.
        status: int64 of ``results.requests``, after these tokens: UNFINISHED, COMPLETED with the last token, REJECTED; or CANCELLED.
    """

    ids: NDArray[np.int64]
    at: NDArray[np.int64]
    tokens: NDArray[np.int64]
    status: NDArray[np.int64]

    def __len__(self) -> int:
        """Number of entries."""
        return len(self.ids)
