"""Sentences from typed values: the one place where a plan is put into words."""
