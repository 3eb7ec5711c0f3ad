"""The MMIE task set: reader, prompts, bundled sample set, the official scorer's format."""
