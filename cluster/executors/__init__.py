"""Where workers run: on a Ray cluster, in this process, or on a virtual clock."""
