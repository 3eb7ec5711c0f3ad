"""`plait paper`: tables, figures and image sheets of finished runs, for a publication."""
