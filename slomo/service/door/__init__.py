"""What happens to every request: routing, limits, access control, error documents; and the OpenAPI document."""
