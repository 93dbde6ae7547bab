"""Ray Serve: the engine's arguments as an application of ``ray.serve.llm``, which places and scales the instances."""
