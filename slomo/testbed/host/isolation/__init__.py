"""Cache ways, devices' ways and buffers of a tenant."""
