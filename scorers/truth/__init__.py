"""Known truth: scenes of coloured shapes, how they are drawn, said and read back."""
