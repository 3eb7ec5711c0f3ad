"""Servers that plait starts: `[servers.NAME]`, and engines that run a named model."""
