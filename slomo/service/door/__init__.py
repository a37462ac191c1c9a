"""Common path of every request: operations, limits, access, problems, the OpenAPI document."""
