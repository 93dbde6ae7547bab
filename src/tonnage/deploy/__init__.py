"""A plan as the files of what runs engines: Docker Compose, Kubernetes and others. It reads the
plan and the catalog, nothing else.
"""
