"""What all chat models share: their settings, presets and turns."""
