"""Anole: Chameleon's token stream, in which text and images are drafted as one."""
