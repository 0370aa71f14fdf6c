"""Content: files, what kinds of them there are, how they are cut, stored, moved and compared.

Nothing here knows of the database. See `manifest` for what a digest covers, `chunking` for the cuts,
`upload` and `download` for the order of effects that keeps a version whole.
"""
