"""Steps of every request (routing, limits, access control, error documents), and the OpenAPI document."""
