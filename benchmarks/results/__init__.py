"""Results of a run: tables of estimates, and the page that shows every answer."""
