"""What a notebook shows of a value of any room: the report's own sections and figures, and rows for
pandas or Polars.

The looks of a value are made some floors above it. So ``tonnage.report.notebook`` is named here as
text, and loaded when a notebook asks: the only place where a floor reaches above itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from tonnage.errors import TonnageError, option

if TYPE_CHECKING:
    import pyarrow as pa

ABOVE = "tonnage.report.notebook"
LIBRARIES = ("pandas", "polars")


class Displayed:
    """A value that notebooks show as its report."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        html: str = import_module(ABOVE).html_of(self)
        return html


class InNotebooks(Displayed):
    """A value that notebooks show, and that has rows."""

    __slots__ = ()

    def arrow(self) -> pa.Table:
        """The rows as an Arrow table; docs/python.md says what a row is."""
        return import_module(ABOVE).table_of(self)

    def frame(self, library: Literal["pandas", "polars"] = "pandas") -> Any:
        """The rows as a data frame.

        Args:
            library: "pandas" or "polars"; Tonnage installs neither.

        Raises:
            TonnageError: the library is not installed, or is neither of the two.
        """
        if library not in LIBRARIES:
            raise TonnageError(
                f"{option('library')}: '{library}' is neither pandas nor polars; arrow() suits"
                " every other"
            )
        try:
            loaded = import_module(library)
        except ImportError:
            raise TonnageError(f"{library} is not installed; pip install {library}") from None
        return loaded.from_arrow(self.arrow()) if library == "polars" else self.arrow().to_pandas()
