"""What all chat models share: their settings and the turns of a conversation."""
