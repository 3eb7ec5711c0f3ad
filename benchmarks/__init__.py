"""Task sets, leaderboard, report and speed measurements."""
