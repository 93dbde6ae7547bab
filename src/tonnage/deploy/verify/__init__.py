"""The files of a deployment, read again: against schemas, against the engine's own flags, and against each other."""
