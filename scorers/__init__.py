"""Judges of documents. Of `generators` they see values and contracts only."""
