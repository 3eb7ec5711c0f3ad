"""What the bundled sample set is made of: photographs, drawings and queries."""
