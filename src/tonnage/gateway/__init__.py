"""A load balancer before N engines: it passes OpenAI and KServe requests on byte for byte and
chooses by the simulator's own routers.
"""
