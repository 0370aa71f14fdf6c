"""The registry over a database and a blob store: one file a facet of `registry.protocol.Registry`."""
