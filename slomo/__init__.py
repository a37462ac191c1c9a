"""slomo: predict how much a network function slows down when it shares a server."""
