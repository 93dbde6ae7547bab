"""A real model on the CPU: OpenVINO GenAI's continuous batching behind the OpenAI API (the extra ``openvino``)."""
