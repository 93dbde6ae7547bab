"""NVIDIA Dynamo: the plan as a ``DynamoGraphDeployment``, a front end that routes by KV cache and its workers."""
