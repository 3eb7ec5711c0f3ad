"""What runs come to: tables of estimates, and the page that shows every answer."""
