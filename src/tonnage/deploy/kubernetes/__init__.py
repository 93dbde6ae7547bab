"""Kubernetes: a Deployment with what belongs around it, as files that kubectl applies together."""
