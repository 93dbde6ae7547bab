"""The version of the package, where every floor can read it."""

VERSION = "1.0.0"
