"""Anole: Chameleon's token stream, in which text and pictures are drafted as one."""
