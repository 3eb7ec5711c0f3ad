"""Batch jobs on clusters: a script for Slurm, a manifest for KubeRay."""
