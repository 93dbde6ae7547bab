"""How far properties are searched: 40 examples each in ./check, and as many as one likes with a profile."""

from hypothesis import settings

settings.register_profile("core", max_examples=40, deadline=None)  # on a busy machine any example may take long
settings.register_profile("thorough", max_examples=1000, deadline=None)  # ./check --hypothesis-profile=thorough
settings.load_profile("core")
