"""How fast a stage is: batch sizes against each other, against upstream, against memory."""
