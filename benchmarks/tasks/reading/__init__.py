"""What readers share: rules of rows, images, snapshots of the Hub, archives."""
