"""What the verdicts are worth: false alarms where nothing leaks, and power where something does."""
