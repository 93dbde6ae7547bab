"""Figures as values, and their drawing as inline SVG."""
