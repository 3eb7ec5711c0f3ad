"""How the mini models are trained: one seeded, resumable command for each."""
