"""A server that answers on a known schedule and writes down when it did: what a client is measured against."""
