"""What daemon and node share: messages, manifest, HEAD, object store client. Stdlib only, Python 3.9 syntax."""
