"""BAGEL: one model that reads images, writes text and draws by flow matching."""
