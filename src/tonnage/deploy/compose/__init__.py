"""Docker Compose: the instances of one machine, with Prometheus and Grafana, and the gateway's settings."""
