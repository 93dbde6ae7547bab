"""A user's own measurements turned into factors on the shipped terms."""
