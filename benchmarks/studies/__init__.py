"""What reads a finished run: comparison in pairs, agreement with people, bias of judges."""
