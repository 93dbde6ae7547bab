"""The answer of a sizing as values: the choice, what it rests on, what else was possible, what it
costs; JSON both ways.

A plan holds codes and numbers and no sentence that another module would have to read again. The
sentences for people are written by ``tonnage.report`` (``wording``), and in no other place.
"""
