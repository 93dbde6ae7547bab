"""What goes over the wire: HTTP/1.1 responses and server-sent events, read piece by piece, and requests as bytes."""
