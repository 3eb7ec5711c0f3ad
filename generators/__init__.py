"""Values, contracts, and models that interleave text and pictures natively."""
