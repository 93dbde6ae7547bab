"""NVIDIA NIM: the plan's degrees, format and context as a profile and variables of a NIM container on Kubernetes."""
