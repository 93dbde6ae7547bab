"""The answer: what one instance carries, the search over deployments, and predictions against measurements."""
