"""Janus-Pro: one model that reads images, writes text and draws by codes, one at a time."""
