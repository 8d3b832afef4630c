"""How fast the broker is, beside programs that answer the same question. See README.md."""
