"""The local page and its HTTP interface: what ``tonnage ui`` serves."""
