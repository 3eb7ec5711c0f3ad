"""Studies of finished runs: pairs, agreement with people, bias of judges, differences."""
