"""What readers share: rows and their rules, pictures, archives, the Hub."""
