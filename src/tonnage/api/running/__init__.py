"""What runs for as long as it is wanted: engines, gateways, deployments, and the watch over
them.
"""
