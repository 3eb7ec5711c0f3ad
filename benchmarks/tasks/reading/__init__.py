"""What readers share: rules of rows, pictures, snapshots of the Hub, archives."""
