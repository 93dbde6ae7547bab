"""Tools for developers of Tonnage: they are not part of the package that users install."""
