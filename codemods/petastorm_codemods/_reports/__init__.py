"""What a run reports, and the page of rules in the guide."""
