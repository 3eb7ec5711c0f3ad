"""One stage is measured, beside the loop of the original program: `plait bench stage`."""
