"""Training and measuring the models of the miniature world."""
