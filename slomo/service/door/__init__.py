"""The common path of every request: routing, limits, access, error documents, and the OpenAPI document."""
