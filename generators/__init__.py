"""Values, contracts, and models that interleave text and images natively."""
