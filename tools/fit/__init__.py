"""Measured runs to fitted coefficients, shipped and calibrated, and their residuals."""
