"""Pipelines of diffusers: settings, strict loading, random weights, drawing."""
