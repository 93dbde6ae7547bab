"""The fit of the terms that the package ships: for developers of Tonnage, from a checkout, with
scipy (``docs/fit.md``).
"""
