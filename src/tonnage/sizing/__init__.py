"""The answer: what one instance carries, and the search over deployments."""
