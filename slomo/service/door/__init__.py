"""What every request passes on its way in and out: operations, limits, access, problems, the OpenAPI document."""
