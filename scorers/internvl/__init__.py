"""The MMIE-Score model: InternVL2-4B as a chat stage, from its published checkpoint."""
