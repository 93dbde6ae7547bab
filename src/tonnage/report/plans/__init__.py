"""The parts of a plan as sections of a document."""
